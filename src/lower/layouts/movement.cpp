#include "lower/layouts/movement.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"

namespace strata {
namespace {

/// What a dim of a local tensor is: one digit of samples or of features, or what is left of them.
struct LabelledDim {
  enum Kind : std::uint8_t { sample_digit, sample_rest, section, feature_digit, feature_rest };
  Kind kind = sample_rest;
  int axis = -1;
  std::int64_t size = 1;
  bool is(const LabelledDim& other) const { return kind == other.kind && axis == other.axis; }
};

/// Of the tensor of @p rank. What is cut unevenly stays together: exchanges that part it are of parts of unequal sizes.
std::vector<LabelledDim> dims_of(const AtomicAxes& axes, int rank, const CutTensor& tensor,
                                 const TensorLayout& layout) {
  using enum LabelledDim::Kind;
  std::vector<LabelledDim> dims;
  const auto digits = [&](LabelledDim::Kind kind, const DimCut& cut, AxisSet held) {
    if (!divides(axes, cut)) return part_of(axes, cut, held, rank).count;
    for (const int a : cut.axes) {
      if (!has(held, a)) dims.push_back({kind, a, axes.size(a)});
    }
    return part_size(axes, cut);
  };
  const std::int64_t samples = digits(sample_digit, tensor.samples, layout.samples);
  dims.push_back({sample_rest, -1, samples * tensor.positions});
  dims.push_back({section, -1, tensor.sections});
  dims.push_back({feature_rest, -1, digits(feature_digit, tensor.features, layout.features)});
  return dims;
}

Permutation permutation(const std::vector<LabelledDim>& from, const std::vector<LabelledDim>& to) {
  Permutation p;
  for (const LabelledDim& dim : from) p.sizes.push_back(dim.size);
  for (const LabelledDim& dim : to) {
    const auto at = std::ranges::find_if(from, [&](const LabelledDim& d) { return d.is(dim); });
    STRATA_INVARIANT(at != from.end(), "a redistribution that loses a dim");
    p.order.push_back(static_cast<int>(at - from.begin()));
  }
  return p;
}

/// What the members of a group along @p over hold of the pieces that travel: a digit of the dim that each axis splits.
std::vector<LabelledDim> pieces(const AtomicAxes& axes, AxisSet over, const TensorLayout& split_by) {
  std::vector<LabelledDim> dims;
  for (int a = 0; a < axes.count(); ++a) {
    if (!has(over, a)) continue;
    dims.push_back(
        {has(split_by.samples, a) ? LabelledDim::sample_digit : LabelledDim::feature_digit, a, axes.size(a)});
  }
  return dims;
}

/// @p dims, and behind them those of @p all that are not among them.
std::vector<LabelledDim> and_others(std::vector<LabelledDim> dims, const std::vector<LabelledDim>& all) {
  const std::vector<LabelledDim> first = dims;
  for (const LabelledDim& dim : all) {
    if (std::ranges::none_of(first, [&](const LabelledDim& f) { return f.is(dim); })) dims.push_back(dim);
  }
  return dims;
}

/// Whether a change from @p from to @p to parts what does not divide.
bool is_unequal(const AtomicAxes& axes, const CutTensor& tensor, const TensorLayout& from, const TensorLayout& to) {
  return (from.samples != to.samples && !divides(axes, tensor.samples)) ||
         (from.features != to.features && !divides(axes, tensor.features));
}

}  // namespace

Movement reversed(const Movement& step) {
  Movement back{
      .collective = step.collective, .axes = step.axes, .from = step.to, .to = step.from, .longest = step.longest};
  if (step.collective == Collective::all_gather) back.collective = Collective::reduce_scatter;
  if (step.collective == Collective::reduce_scatter) back.collective = Collective::all_gather;
  return back;
}

Movement Movements::between(const CutTensor& tensor, const TensorLayout& from, const TensorLayout& to,
                            Collective collective, AxisSet over) {
  if (is_unequal(axes_, tensor, from, to)) return in_unequal_parts({tensor, from, to, collective, over});
  const auto held = [&](const TensorLayout& layout) { return dims_of(axes_, rank_, tensor, layout); };
  Movement step{.collective = collective, .axes = over, .from = {}, .to = {}};
  switch (collective) {
    case Collective::all_gather: {
      std::vector<LabelledDim> gathered = pieces(axes_, over, from);
      std::ranges::copy(held(from), std::back_inserter(gathered));
      step.to.permutation = permutation(gathered, held(to)).inverse();
      break;
    }
    case Collective::reduce_scatter:
      step.from.permutation = permutation(held(from), and_others(pieces(axes_, over, to), held(from)));
      break;
    case Collective::all_to_all: {
      const std::vector<LabelledDim> packed = and_others(pieces(axes_, over, to), held(from));
      step.from.permutation = permutation(held(from), packed);
      std::vector<LabelledDim> received = pieces(axes_, over, from);
      std::copy(packed.begin() + static_cast<std::ptrdiff_t>(received.size()), packed.end(),
                std::back_inserter(received));
      step.to.permutation = permutation(received, held(to)).inverse();
      break;
    }
    default: throw InternalError("no redistribution");
  }
  return step;
}

/// A model has few, block after block, and every rank of the group is looked at against every other.
const Movement& Movements::in_unequal_parts(const Moved& moved) {
  const auto known = std::ranges::find(unequal_, moved, &std::pair<Moved, Movement>::first);
  if (known != unequal_.end()) return known->second;
  const auto& [tensor, from, to, collective, over] = moved;
  const std::vector<int> group = axes_.group(over, rank_);
  Movement step{.collective = collective, .axes = over, .from = {}, .to = {}};
  if (collective != Collective::all_gather) step.from = parts_of(axes_, tensor, {from, rank_}, to, group);
  if (collective != Collective::reduce_scatter) step.to = parts_of(axes_, tensor, {to, rank_}, from, group);
  step.longest = longest_part(axes_, tensor, from, to, group);
  return unequal_.emplace_back(moved, std::move(step)).second;
}

Movement Movements::part(const CutTensor& tensor, const TensorLayout& from, const TensorLayout& to) const {
  Movement step;
  if (is_unequal(axes_, tensor, from, to)) {
    step.from = parts_of(axes_, tensor, {from, rank_}, to, {rank_});
    return step;
  }
  const std::vector<LabelledDim> held = dims_of(axes_, rank_, tensor, from);
  Permutation& permuted = step.from.permutation = permutation(held, dims_of(axes_, rank_, tensor, to));
  std::int64_t stride = 1;
  for (std::size_t d = held.size(); d-- > 0; stride *= held[d].size) {
    const bool is_taken = (held[d].kind == LabelledDim::feature_digit && has(to.features, held[d].axis)) ||
                          (held[d].kind == LabelledDim::sample_digit && has(to.samples, held[d].axis));
    if (is_taken) permuted.first += axes_.coordinate(held[d].axis, rank_) * stride;
  }
  return step;
}

}  // namespace strata
