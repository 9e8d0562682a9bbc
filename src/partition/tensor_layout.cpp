#include "partition/tensor_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/collective.hpp"
#include "base/error.hpp"

namespace strata {
namespace {

std::vector<int> prime_factors(int n) {
  std::vector<int> factors;
  for (int p = 2; n > 1; ++p) {
    for (; n % p == 0; n /= p) factors.push_back(p);
  }
  return factors;
}

}  // namespace

AtomicAxes::AtomicAxes(const Mesh& mesh) {
  const auto add = [&](int ranks, int unit, bool across_nodes) {
    int stride = ranks * unit;
    for (const int size : prime_factors(ranks)) {
      stride /= size;
      axes_.push_back({size, stride, across_nodes});
    }
  };
  const Mesh stage = mesh_of_stage(mesh);
  add(stage.nodes, stage.ranks_per_node, true);
  add(stage.ranks_per_node, 1, false);
  STRATA_INVARIANT(axes_.size() < 32, "a mesh of more than 2^31 ranks");
}

int AtomicAxes::num_ranks(AxisSet set) const { return factor(set).total(); }

Factor AtomicAxes::factor(AxisSet set) const {
  Factor factor;
  for (int a = 0; a < count(); ++a) {
    const Axis& axis = axes_[static_cast<std::size_t>(a)];
    if (has(set, a)) (axis.across_nodes ? factor.nodes : factor.in_node) *= axis.size;
  }
  return factor;
}

int AtomicAxes::coordinate(int axis, int rank) const {
  const Axis& a = axes_[static_cast<std::size_t>(axis)];
  return rank / a.stride % a.size;
}

int AtomicAxes::index(AxisSet set, int rank) const {
  int index = 0;
  for (int a = 0; a < count(); ++a) {
    if (has(set, a)) index = index * axes_[static_cast<std::size_t>(a)].size + coordinate(a, rank);
  }
  return index;
}

std::vector<int> AtomicAxes::group(AxisSet set, int rank) const {
  std::vector<int> ranks = {rank};
  for (int a = 0; a < count(); ++a) {
    if (!has(set, a)) continue;
    const Axis& axis = axes_[static_cast<std::size_t>(a)];
    std::vector<int> more;
    for (const int r : ranks) {
      const int origin = r - coordinate(a, r) * axis.stride;
      for (int c = 0; c < axis.size; ++c) more.push_back(origin + c * axis.stride);
    }
    ranks = std::move(more);
  }
  return ranks;
}

std::optional<AxisSet> AtomicAxes::choose(const Factor& degree, AxisSet among, AxisSet preferred) const {
  AxisSet chosen = 0;
  for (const bool across_nodes : {false, true}) {
    for (const int prime : prime_factors(across_nodes ? degree.nodes : degree.in_node)) {
      const auto take_from = [&](AxisSet set) {
        for (int a = 0; a < count(); ++a) {
          const Axis& axis = axes_[static_cast<std::size_t>(a)];
          if (!has(set & ~chosen, a) || axis.across_nodes != across_nodes || axis.size != prime) continue;
          chosen |= AxisSet{1} << a;
          return true;
        }
        return false;
      };
      if (!take_from(among & preferred) && !take_from(among)) return std::nullopt;
    }
  }
  return chosen;
}

std::string to_text(const TensorLayout& layout, const AtomicAxes& axes) {
  const AxisSet copies = axes.all() & ~(layout.samples | layout.features | layout.partial);
  const std::array<std::pair<const char*, AxisSet>, 4> parts = {
      {{"S0", layout.samples}, {"S1", layout.features}, {"P", layout.partial}, {"B", copies}}};
  std::string text;
  for (const auto& [word, set] : parts) {
    if (axes.num_ranks(set) == 1) continue;
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", word, to_string(axes.factor(set)));
  }
  return text.empty() ? "B:1x1" : text;
}

AxisSet set_of(const AxisOrder& order) {
  AxisSet set = 0;
  for (const int a : order) set |= AxisSet{1} << a;
  return set;
}

bool divides(const AtomicAxes& axes, const DimCut& cut) {
  return cut.size / cut.granule % axes.num_ranks(set_of(cut.axes)) == 0;
}

std::int64_t part_size(const AtomicAxes& axes, const DimCut& cut) {
  return cut.granule * chunk_of(cut.size / cut.granule, axes.num_ranks(set_of(cut.axes)), 0).size();
}

DimPart part_of(const AtomicAxes& axes, const DimCut& cut, AxisSet held, int rank) {
  STRATA_INVARIANT((held & ~set_of(cut.axes)) == 0, "a dim is held by axes that do not cut it");
  STRATA_INVARIANT(cut.size % cut.granule == 0, fmt::format("{} elements in granules of {}", cut.size, cut.granule));
  if (held == 0) return all_of(cut.size);
  std::vector<Digit> digits;
  for (const int a : cut.axes) digits.push_back({axes.size(a), has(held, a) ? axes.coordinate(a, rank) : -1});
  digits.push_back({part_size(axes, cut), -1});
  return part_of(std::move(digits), cut.size);
}

}  // namespace strata
