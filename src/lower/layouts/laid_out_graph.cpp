#include "lower/layouts/laid_out_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "ir/program/kernel_runs.hpp"
#include "lower/layouts/cut_tensor.hpp"
#include "lower/layouts/layout_axes.hpp"
#include "lower/layouts/movement.hpp"

namespace strata {
namespace {

class LayingOut {
 public:
  LayingOut(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions,
            std::int64_t num_samples, int rank)
      : plan_(plan),
        whole_(graph),
        decisions_(decisions),
        rank_(rank),
        model_(layouts_of_model(plan, graph, decisions)),
        axes_(model_.axes),
        movements_(axes_, rank),
        num_samples_(num_samples),
        local_(graph.tensors.size(), -1),
        local_parameter_(graph.parameters.size(), -1) {}

  LaidOutGraph run() && {
    result_.graph.name = whole_.name;
    result_.graph.positions_per_sample = whole_.positions_per_sample;
    result_.graph.blocks = whole_.blocks;
    for (std::size_t o = 0; o < whole_.operators.size(); ++o) add_operator(o);
    number_blocks();
    cut_stages();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw Unsupported(fmt::format("{}: {} cannot be lowered", who(name), what));
  }
  std::string who(const std::string& name) const { return fmt::format("plan `{}`: {}", plan_.strategy, name); }
  const Operator& op_at(std::size_t o) const { return whole_.operators[o]; }
  /// @param whole of op_at().
  const OperatorDecision& decision_of(const Operator& whole) const {
    return decisions_[static_cast<std::size_t>(&whole - whole_.operators.data())];
  }
  const Tensor& tensor_at(int t) const { return whole_.tensors[static_cast<std::size_t>(t)]; }
  AxisSet rest(AxisSet set) const { return axes_.all() & ~set; }
  int ranks(AxisSet set) const { return axes_.num_ranks(set); }
  int ranks(const AxisOrder& order) const { return axes_.num_ranks(set_of(order)); }
  const TensorLayout& home(int t) const { return model_.homes[static_cast<std::size_t>(t)]; }
  std::int64_t sections_of(int t) const { return model_.sections[static_cast<std::size_t>(t)]; }
  const AxisOrder& features_of(int t) const { return model_.feature_orders[static_cast<std::size_t>(t)]; }

  // ---- sizes

  DimCut samples_cut() const { return {model_.sample_order, num_samples_}; }
  /// Of one section of a row of @p width features.
  DimCut features_cut(int t, std::int64_t width) const {
    const std::int64_t sections = sections_of(t);
    if (sections == 0) refuse(tensor_at(t).name, "fused query, key and value heads in unequal numbers, split,");
    return {features_of(t), width / sections, model_.granules[static_cast<std::size_t>(t)]};
  }

  /// What of a dim this rank holds by @p held. Everything that a rank has is cut here.
  DimPart held_part(const DimCut& cut, AxisSet held) {
    if (const HeldCut part{cut, held}; held != 0 && !divides(axes_, cut) &&
                                       std::ranges::find(result_.uneven_parts, part) == result_.uneven_parts.end()) {
      result_.uneven_parts.push_back(part);
    }
    return part_of(axes_, cut, held, rank_);
  }
  DimPart held_samples(AxisSet held) { return held_part(samples_cut(), held); }
  /// Of a row of @p width features: of its sections, each cut alike, and of one of them.
  std::vector<DimPart> held_features(int t, AxisSet held, std::int64_t width) {
    if (held == 0) return {all_of(width)};
    return {all_of(sections_of(t)), held_part(features_cut(t, width), held)};
  }

  /// A tensor of the rank, without its producer. Of an image as its reader sees it, @p flat, one row of all of it.
  int add_tensor(int t, const TensorLayout& layout, const std::string& suffix, bool flat = false) {
    Tensor local = tensor_at(t);
    local.name += suffix;
    if (flat && is_image(local)) local.shape = {local.elements_per_sample()};
    if (layout.features != 0) {
      local.shape.back() = num_elements(held_features(t, layout.features, local.shape.back()));
    }
    result_.graph.tensors.push_back(std::move(local));
    result_.layouts.push_back(layout);
    const std::vector<DimPart> samples = {held_samples(layout.samples)};
    result_.num_samples.push_back(samples.front().count);
    result_.samples.push_back(block_of(samples));
    return static_cast<int>(result_.graph.tensors.size()) - 1;
  }

  /// @param rows and @p columns what of its dims the rank holds, cut by @p cut. @param shape of what is held.
  /// @param replicas the axes over which states are shared.
  int add_parameter(int p, std::vector<DimPart> rows, const std::vector<DimPart>& columns,
                    std::vector<std::int64_t> shape, AxisSet cut, AxisSet replicas) {
    int& local = local_parameter_[static_cast<std::size_t>(p)];
    std::ranges::copy(columns, std::back_inserter(rows));
    Parameter part = whole_.parameters[static_cast<std::size_t>(p)];
    part.block = block_of(rows);
    part.shape = std::move(shape);
    if (local >= 0) {
      const auto& there = result_.graph.parameters[static_cast<std::size_t>(local)];
      STRATA_INVARIANT(there == part, part.name + ": two uses hold different parts");
      return local;
    }
    local = static_cast<int>(result_.graph.parameters.size());
    result_.graph.parameters.push_back(std::move(part));
    result_.replicas.push_back(replicas);
    result_.num_copies.push_back(ranks(rest(cut)));
    return local;
  }

  // ---- redistributions

  /// @param flat of an image one row of all of it.
  CutTensor cut_of(int t, bool flat) const {
    const Tensor& whole = tensor_at(t);
    const std::int64_t width = flat && is_image(whole) ? whole.elements_per_sample() : whole.shape.back();
    return {.samples = samples_cut(),
            .positions = whole.elements_per_sample() / width,
            .sections = sections_of(t),
            .features = features_cut(t, width)};
  }

  int add_step(int whole_tensor, int input, const TensorLayout& to, const Operator& reader, Redistribution step,
               bool flat) {
    const int output = add_tensor(whole_tensor, to, fmt::format("/{}", to_text(to, axes_)), flat);
    Operator op{.name = result_.graph.tensors[static_cast<std::size_t>(output)].name,
                .kind = OperatorKind::redistribute,
                .inputs = {input},
                .outputs = {output},
                .parameters = {},
                .attributes = {{"step", static_cast<std::int64_t>(result_.steps.size())}},
                .block = reader.block};
    result_.steps.push_back(std::move(step));
    push(std::move(op), {.recompute = decision_of(reader).recompute});
    return output;
  }

  /// The axes along which the ranks have the same.
  AxisSet copies(const TensorLayout& layout) const { return rest(layout.samples | layout.features); }

  /// What the ranks that hold copies of a tensor make of its gradient.
  enum class GradientOfCopies : std::uint8_t {
    equal,   ///< each all of it: they do the same
    partial  ///< each a part of the sum: of a product's input
  };

  /// The rank's tensor that holds @p t as @p to, by what redistributions it takes.
  int in_layout(int t, const TensorLayout& to, const Operator& reader, GradientOfCopies gradient, bool flat = false) {
    const Copy copy{t, to.samples, to.features, gradient, flat};
    const auto known = copies_.find(copy);
    if (known != copies_.end()) return known->second;
    int at = local_[static_cast<std::size_t>(t)];
    if (at < 0) {  // an input of the model
      at = local_[static_cast<std::size_t>(t)] = add_tensor(t, home(t), "", flat);
    }
    TensorLayout from = result_.layouts[static_cast<std::size_t>(at)];
    if (from == to) return copies_[copy] = at;
    const CutTensor tensor = cut_of(t, flat);
    const auto go_to = [&](const TensorLayout& next, Redistribution step) {
      at = add_step(t, at, next, reader, std::move(step), flat);
      from = next;
    };
    const TensorLayout taken{.samples = from.samples | (copies(from) & to.samples),
                             .features = from.features | (copies(from) & to.features)};
    if (taken != from) {
      Redistribution step{.forward = movements_.part(tensor, from, taken), .backward = {}};
      if (tensor_at(t).role == TensorRole::activation) {  // else nobody wants the gradient
        const AxisSet over = copies(from) & ~copies(taken);
        step.backward = movements_.between(tensor, taken, from, Collective::all_gather, over);
      }
      go_to(taken, std::move(step));
    }
    const TensorLayout split = exchanged(t, from, to, gradient, decision_of(reader));
    if (split != from) {
      Movement there = movements_.between(tensor, from, split, Collective::all_to_all, from.samples ^ split.samples);
      go_to(split, {.forward = there, .backward = reversed(there)});
    }
    if (const AxisSet over = copies(to) & ~copies(split); over != 0) {
      Movement there = movements_.between(tensor, from, to, Collective::all_gather, over);
      Movement back = gradient == GradientOfCopies::partial ? reversed(there) : movements_.part(tensor, to, from);
      go_to(to, {.forward = std::move(there), .backward = std::move(back)});
    }
    copies_[copy] = at;
    return at;
  }

  /// How @p t, which comes as @p from, is split before it is gathered into @p to for @p reader.
  TensorLayout exchanged(int t, const TensorLayout& from, const TensorLayout& to, GradientOfCopies gradient,
                         const OperatorDecision& reader) const {
    const bool spares_exchange =
        from.features == to.features && model_.gathered_along_samples[static_cast<std::size_t>(t)];
    if (gradient == GradientOfCopies::partial && from != to && !spares_exchange &&
        is_exchanged_first(axes_, home(t), reader)) {
      return {.samples = to.samples, .features = rest(to.samples)};
    }
    const AxisSet changed = (from.samples & to.features) | (from.features & to.samples);
    return {.samples = from.samples ^ changed, .features = from.features ^ changed};
  }

  // ---- operators

  void push(Operator op, OperatorDecision decision) {
    decision.layout.reset();
    result_.graph.operators.push_back(std::move(op));
    result_.decisions.push_back(std::move(decision));
  }

  void add_operator(std::size_t o) {
    const Operator& whole = op_at(o);
    Operator op = whole;
    op.inputs.clear();
    op.outputs.clear();
    op.parameters.clear();
    if (is_product(whole)) {
      add_product(o, std::move(op));
      return;
    }
    const TensorLayout layout = home(whole.outputs.front());
    for (const int t : whole.inputs) {
      op.inputs.push_back(
          in_layout(t, whole.kind == OperatorKind::cross_entropy ? home(t) : layout, whole, GradientOfCopies::equal));
    }
    set_sizes(whole, op,
              whole.kind == OperatorKind::cross_entropy ? home(whole.inputs.front()).features : layout.features);
    if (whole.kind == OperatorKind::dropout) set_positions(whole, op);
    for (const int t : whole.outputs) {
      const bool is_statistic = tensor_at(t).role != TensorRole::activation;
      op.outputs.push_back(local_[static_cast<std::size_t>(t)] =
                               is_statistic ? add_statistic(whole, t, layout) : add_tensor(t, layout, ""));
    }
    add_parameters_of_rows(whole, op, layout);
    if (whole.kind == OperatorKind::batch_norm) {
      result_.norm_parts[static_cast<int>(result_.graph.operators.size())] = sample_parts(whole.outputs.front());
    }
    push(std::move(op), decisions_[o]);
  }

  /// What of the features of one section, all heads of one kind, this rank has: whole heads.
  DimPart held_heads(const Operator& whole, AxisSet split) {
    const int x = whole.inputs.front();
    DimPart part = held_part(features_cut(x, tensor_at(x).shape.back()), split);
    STRATA_INVARIANT(part.count % whole.attributes.integer("head_dim") == 0, whole.name + ": a head is cut");
    return part;
  }

  /// Statistics are of rows, or, of attention, of heads.
  int add_statistic(const Operator& op, int t, const TensorLayout& layout) {
    const int local = add_tensor(t, {.samples = layout.samples}, "");
    if (op.kind == OperatorKind::attention) {
      std::int64_t& heads = result_.graph.tensors[static_cast<std::size_t>(local)].shape.front();
      if (layout.features != 0) heads = held_heads(op, layout.features).count / op.attributes.integer("head_dim");
    }
    return local;
  }

  /// Of the samples of @p t.
  SampleParts sample_parts(int t) {
    const AxisSet split = home(t).samples;
    SampleParts parts{.index = 0, .count = 0, .is_kept = axes_.index(axes_.all() & ~split, rank_) == 0};
    for (const int rank : axes_.group(split, rank_)) {
      const bool has_samples = part_of(axes_, samples_cut(), split, rank).count > 0;
      if (rank == rank_) {
        parts.index = parts.count;
        parts.is_kept = parts.is_kept && has_samples;
      }
      parts.count += has_samples ? 1 : 0;
    }
    return parts;
  }

  void set_sizes(const Operator& whole, Operator& op, AxisSet split) {
    if (split == 0) return;
    const int x = whole.inputs.front();
    const auto set_width = [&] {
      const DimCut cut{features_of(x), whole.attributes.integer("width"), model_.granules[static_cast<std::size_t>(x)]};
      op.attributes.set("width", held_part(cut, split).count);
      return divides(axes_, cut);
    };
    switch (whole.kind) {
      case OperatorKind::rotary:
      case OperatorKind::attention: {
        // Of keys and values there are as many: others are not split.
        const std::int64_t head_dim = whole.attributes.integer("head_dim");
        const DimPart held = held_heads(whole, split);
        op.attributes.set("heads", held.count / head_dim);
        op.attributes.set("kv_heads", held.count / head_dim);
        op.attributes.set("total_heads", whole.attributes.integer("heads"));
        if (whole.kind == OperatorKind::attention && whole.attributes.real("dropout") > 0.0) {
          op.attributes.set("first_head", first_of(whole.name, held) / head_dim);
        }
        break;
      }
      case OperatorKind::swiglu:
      case OperatorKind::first_row: set_width(); break;
      case OperatorKind::layer_norm:
      case OperatorKind::rms_norm:
        if (!set_width()) op.attributes.set("features", whole.attributes.integer("width"));
        break;
      case OperatorKind::cross_entropy: {
        const std::vector<DimPart> classes = {held_part(features_cut(x, whole.attributes.integer("classes")), split)};
        op.attributes.set("classes", classes.front().count);
        set_runs(op.attributes, "first_class", block_of(classes), who(whole.name));
        break;
      }
      case OperatorKind::dropout:  // set_positions
      case OperatorKind::gelu:
      case OperatorKind::gelu_erf:
      case OperatorKind::relu:
      case OperatorKind::add: break;
      default:
        refuse(whole.name, fmt::format("a {} of features split over {} ranks", to_string(whole.kind), ranks(split)));
    }
  }

  /// Random numbers are drawn by position in the whole: of a sample's elements, and of all samples before it.
  void set_positions(const Operator& whole, Operator& op) {
    const int t = whole.inputs.front();
    const Tensor& x = tensor_at(t);
    const std::int64_t row = x.shape.back();
    const TensorLayout& layout = home(t);
    std::vector<DimPart> dims = {held_samples(layout.samples), all_of(x.elements_per_sample() / row)};
    std::ranges::copy(held_features(t, layout.features, row), std::back_inserter(dims));
    op.attributes.set("sample_elements", x.elements_per_sample());
    set_runs(op.attributes, "first", block_of(dims), who(whole.name));
  }

  /// Where what this rank holds of a dim begins, which has to be neighbours.
  std::int64_t first_of(const std::string& name, const DimPart& part) const {
    const StridedBlock block = block_of(std::vector{part});
    if (!block.levels.empty()) {
      refuse(name, fmt::format("{} features of which a rank has {} apart", part.size, block.run));
    }
    return block.first;
  }

  /// Norms' weights lie as the rows that they scale; convolutions' are whole.
  void add_parameters_of_rows(const Operator& whole, Operator& op, const TensorLayout& layout) {
    const Factor shared = axes_.factor(layout.samples), &os = decision_of(whole).state.os;
    if (!whole.parameters.empty() && (shared.in_node % os.in_node != 0 || shared.nodes % os.nodes != 0)) {
      refuse(whole.name, fmt::format("os = {} of what {} ranks share", to_string(os), to_string(shared)));
    }
    for (const int p : whole.parameters) {
      const Parameter& parameter = whole_.parameters[static_cast<std::size_t>(p)];
      std::vector<std::int64_t> shape = parameter.shape;
      if (layout.features == 0 || works_on_images(whole)) {
        op.parameters.push_back(add_parameter(p, {all_of(parameter.num_elements())}, {}, shape, 0, layout.samples));
        continue;
      }
      const std::vector<DimPart> features = held_features(whole.inputs.front(), layout.features, shape.back());
      std::vector<std::int64_t> split_shape = shape;
      split_shape.back() = num_elements(features);
      op.parameters.push_back(add_parameter(p, features, {}, std::move(split_shape), layout.features, layout.samples));
    }
  }

  /// C = A·B of parts of inputs, weights and outputs: see lower/summa_panels.
  void add_summa(std::size_t o, Operator op) {
    const Operator& whole = op_at(o);
    const LayoutAxes& r = model_.products[o];
    const int x = whole.inputs.front(), y = whole.outputs.front();
    const std::int64_t in = whole.attributes.integer("in"), out = whole.attributes.integer("out");
    const int local_x = in_layout(x, r.input(), whole, GradientOfCopies::partial, true);
    op.inputs = {local_x};
    const SummaCut cut{
        .rows = r.p0, .columns = r.p2, .inputs = features_cut(x, in), .weight_digits = model_.weight_digits[o]};
    std::vector<DimCut> panelled = {cut.inputs, samples_cut()};
    if (r.p2 != 0) panelled.push_back(features_cut(y, out));
    for (const DimCut& dim : panelled) {
      if (!divides(axes_, dim)) result_.unequal_panels |= set_of(dim.axes) | r.p0 | r.p2;
    }
    const std::vector<DimPart> outputs = held_features(y, r.p2, out);
    const std::vector<DimPart> inputs = {weight_inputs(axes_, cut, rank_)};
    const std::int64_t in_held = num_elements(inputs), out_held = num_elements(outputs);
    op.attributes.set("in", held_part(cut.inputs, r.p2).count);
    op.attributes.set("out", out_held);
    op.attributes.set("summa", static_cast<std::int64_t>(result_.panels.size()));
    const std::int64_t rows =
        result_.num_samples[static_cast<std::size_t>(local_x)] * (tensor_at(x).elements_per_sample() / in);
    result_.panels.push_back(summa_panels(axes_, cut, {.rows = rows, .out = out_held}, rank_));
    for (const int p : whole.parameters) {
      op.parameters.push_back(p == whole.parameters.front()
                                  ? add_parameter(p, outputs, inputs, {out_held, in_held}, r.p0 | r.p2, r.p1)
                                  : add_parameter(p, outputs, {}, {out_held}, r.p2, r.p0 | r.p1));
    }
    op.outputs = {local_[static_cast<std::size_t>(y)] = add_tensor(y, r.output(), "")};
    push(std::move(op), decisions_[o]);
  }

  /// Whether blocks of a product of algorithm ring have to go round at all: not where its weight is whole, nor where
  /// ranks have loaded all of its input, whose gradient nobody wants.
  bool goes_round(std::size_t o) const {
    if (decisions_[o].algorithm != MatmulAlgorithm::ring) return false;
    const LayoutAxes& r = model_.products[o];
    const bool gathers = r.p1 != 0 && tensor_at(op_at(o).inputs.front()).role == TensorRole::activation;
    return gathers || r.p2 != 0;
  }

  /// Parts of inputs, weights and outputs as of a local product, but the input, or the output, as it stands between
  /// products: see lower/layouts/ring_product.cpp.
  void add_ring(std::size_t o, Operator op) {
    const Operator& whole = op_at(o);
    const LayoutAxes& r = model_.products[o];
    const int x = whole.inputs.front(), y = whole.outputs.front();
    const std::int64_t in = whole.attributes.integer("in"), out = whole.attributes.integer("out");
    const AxisSet ring = r.p1 | r.p2;  // one of them
    op.inputs = {in_layout(x, {.samples = r.p0, .features = ring}, whole, GradientOfCopies::partial, true)};
    const DimCut inputs_cut = features_cut(x, in);
    const std::vector<DimPart> outputs = held_features(y, r.p1, out), inputs = {held_part(inputs_cut, r.p2)};
    const std::int64_t in_held = num_elements(inputs), out_held = num_elements(outputs);
    op.attributes.set("in", held_part(inputs_cut, ring).count);
    op.attributes.set("out", out_held);
    op.attributes.set("ring", static_cast<std::int64_t>(result_.rings.size()));
    // Of two ranks each is before and behind the other.
    const int directions = axes_.num_ranks(ring) > 2 ? decisions_[o].directions : 1;
    RingBlocks blocks{.axes = ring, .directions = directions, .is_of_inputs = r.p1 != 0};
    for (const int member : axes_.group(ring, rank_)) {
      std::vector<DimPart> dims;  // of the weight
      if (blocks.is_of_inputs) {
        dims = {all_of(out_held), part_of(axes_, inputs_cut, ring, member)};
        blocks.widths.push_back(dims.back().count);
      } else {
        dims = {all_of(sections_of(y)), part_of(axes_, features_cut(y, out), ring, member)};
        blocks.widths.push_back(num_elements(dims));
        blocks.biases.add(block_of(dims), blocks.widths.back());
        dims.push_back(all_of(in_held));
      }
      blocks.weights.add(block_of(dims), num_elements(dims));
    }
    if (whole.parameters.size() > 1 && r.p2 != 0) {
      op.attributes.set("adds", axes_.index(r.p2, rank_) == 0 ? 1 : 0);
    }
    result_.rings.push_back(std::move(blocks));
    for (const int p : whole.parameters) {
      op.parameters.push_back(p == whole.parameters.front()
                                  ? add_parameter(p, outputs, inputs, {out_held, in_held}, ring, r.p0)
                                  : add_parameter(p, outputs, {}, {out_held}, r.p1, r.p0));
      if (r.p2 != 0 && p != whole.parameters.front()) result_.added_by_one[op.parameters.back()] = r.p2;
    }
    op.outputs = {local_[static_cast<std::size_t>(y)] = add_tensor(y, home(y), "")};
    push(std::move(op), decisions_[o]);
  }

  void add_product(std::size_t o, Operator op) {
    const Operator& whole = op_at(o);
    const LayoutAxes& r = model_.products[o];
    if (r.is_summa()) {
      add_summa(o, std::move(op));
      return;
    }
    if (goes_round(o)) {
      add_ring(o, std::move(op));
      return;
    }
    const int x = whole.inputs.front(), y = whole.outputs.front();
    const bool is_linear = whole.kind == OperatorKind::linear;
    const std::int64_t in = whole.attributes.integer(is_linear ? "in" : "vocabulary");
    const std::int64_t out = whole.attributes.integer(is_linear ? "out" : "width");
    const DimCut in_cut = is_linear ? features_cut(x, in) : DimCut{model_.vocabulary_orders[o], in};
    TensorLayout input = r.input();
    if (!is_linear) input.features = 0;
    op.inputs = {in_layout(x, input, whole, GradientOfCopies::partial, is_linear)};
    if (tensor_at(x).role == TensorRole::activation) {
      const TensorLayout& before = result_.layouts[static_cast<std::size_t>(local_[static_cast<std::size_t>(x)])];
      const AxisSet over = copies(before) & copies(input);
      if (over != 0) op.attributes.set("sum_gradient_over", std::int64_t{over});
    }
    const std::vector<DimPart> outputs = held_features(y, r.p1, out);
    const std::vector<DimPart> inputs = {held_part(in_cut, r.p2)};
    const std::int64_t in_held = num_elements(inputs), out_held = num_elements(outputs);
    op.attributes.set(is_linear ? "in" : "table_rows", in_held);
    op.attributes.set(is_linear ? "out" : "width", out_held);
    if (!is_linear) {
      if (r.p2 == 0) {
        op.attributes = whole.attributes;
        op.attributes.set("width", out_held);
      } else {
        op.attributes.set("first_token", first_of(whole.name, inputs.front()));
      }
    }
    if (whole.parameters.size() > 1 && r.p2 != 0) {
      op.attributes.set("adds", axes_.index(r.p2, rank_) == 0 ? 1 : 0);
    }
    for (const int p : whole.parameters) {
      const bool is_weight = p == whole.parameters.front();
      const std::vector<std::int64_t>& shape = whole_.parameters[static_cast<std::size_t>(p)].shape;
      if (is_weight && is_linear) {
        op.parameters.push_back(add_parameter(p, outputs, inputs, {out_held, in_held}, r.p1 | r.p2, r.p0));
      } else if (is_weight) {
        op.parameters.push_back(add_parameter(p, inputs, outputs, {in_held, out_held}, r.p1 | r.p2, r.p0));
      } else if (is_linear) {
        op.parameters.push_back(add_parameter(p, outputs, {}, {out_held}, r.p1, r.p0));
      } else {
        op.parameters.push_back(
            add_parameter(p, {all_of(shape.front())}, outputs, {shape.front(), out_held}, r.p1, r.p0));
      }
      if (!is_weight && r.p2 != 0) result_.added_by_one[op.parameters.back()] = r.p2;
    }
    int& local = local_[static_cast<std::size_t>(y)];
    if (r.p2 == 0 || decisions_[o].sum == PartialSums::all_reduce) {
      if (r.p2 != 0 || r.p1 == 0) op.attributes.set("sum_over", std::int64_t{r.p2});
      op.outputs = {local = add_tensor(y, home(y), "")};
      push(std::move(op), decisions_[o]);
      return;
    }
    op.outputs = {local = add_tensor(y, r.output(), "/partial")};
    push(std::move(op), decisions_[o]);
    Movement sum = movements_.between(cut_of(y, false), r.output(), home(y), Collective::reduce_scatter, r.p2);
    local = add_step(y, local, home(y), whole, {.forward = sum, .backward = reversed(sum)}, false);
  }

  void number_blocks() {
    for (std::size_t b = 0; b < result_.graph.blocks.size(); ++b) {
      Block& block = result_.graph.blocks[b];
      const auto is_in = [&](const Operator& op) { return op.block == static_cast<int>(b); };
      const auto first = std::ranges::find_if(result_.graph.operators, is_in);
      block.first_operator = static_cast<int>(first - result_.graph.operators.begin());
      block.num_operators = static_cast<int>(std::ranges::count_if(result_.graph.operators, is_in));
    }
  }

  /// At the blocks at which the whole model is cut.
  void cut_stages() {
    for (const Stage& whole : cut_into_stages(whole_, plan_.stages)) {
      int begin = 0;
      for (std::size_t b = 0; b < whole_.blocks.size() && whole.first_operator > 0; ++b) {
        if (whole_.blocks[b].first_operator == whole.first_operator) begin = result_.graph.blocks[b].first_operator;
      }
      STRATA_INVARIANT((begin > 0) == (whole.first_operator > 0), "a stage begins with a block");
      if (!result_.stages.empty()) result_.stages.back().num_operators = begin - result_.stages.back().first_operator;
      result_.stages.push_back({begin, static_cast<int>(result_.graph.operators.size()) - begin});
    }
  }

  /// A tensor, its samples and features, its gradient, and whether it is one row.
  using Copy = std::tuple<int, AxisSet, AxisSet, GradientOfCopies, bool>;
  const Plan& plan_;
  const ModelGraph& whole_;
  std::span<const OperatorDecision> decisions_;
  int rank_;
  LayoutsOfModel model_;
  const AtomicAxes& axes_;
  Movements movements_;
  std::int64_t num_samples_;          ///< over all ranks
  std::vector<int> local_;            ///< by tensor: the rank's, at home; -1: not yet
  std::vector<int> local_parameter_;  ///< by parameter; -1: not held, or not yet
  std::map<Copy, int> copies_;        ///< the rank's tensors in other layouts
  LaidOutGraph result_;
};

}  // namespace

LaidOutGraph lay_out(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions,
                     std::int64_t num_samples, int rank) {
  return LayingOut(plan, graph, decisions, num_samples, rank).run();
}

}  // namespace strata
