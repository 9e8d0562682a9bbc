#pragma once

/// @file
/// How tensors lie on the ranks (SBP: split, broadcast, partial sum; AutoDDL sec. 4, OneFlow). The decision in this
/// file: the mesh is a list of atomic axes, the prime factors of its nodes and of the ranks in a node, and a layout
/// says of every axis what it does to a tensor. p0, p1, p2 of a linear are sets of axes, a collective runs over a set
/// of axes, and to change a layout is to change what some axes do.
///
/// A dim that axes split is cut into digits, one an axis that ever splits such a dim in this model (AxisOrder), and a
/// rank holds those whose digits are its coordinates. So which samples and which features a rank has follows from the
/// set of axes alone, whatever layout came before: nothing has to be permuted between layers. Where the product of all
/// those axes divides the dim, all exchanges are of equal pieces; where it does not, the dim is cut into as many parts
/// as collectives cut tensors (chunk_of): equal ones, of which the last is short, or the last are empty. part_of() is
/// the one place that knows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/model/strided_block.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Some of the mesh's atomic axes, a bit each.
using AxisSet = std::uint32_t;
constexpr bool has(AxisSet set, int axis) { return (set >> axis & 1U) != 0; }

class AtomicAxes {
 public:
  /// Of the ranks of a stage: prime factors of its nodes first, then those of its ranks in a node, the smallest first;
  /// the first is slowest. Ranks are numbered as in all of the mesh.
  explicit AtomicAxes(const Mesh& mesh);

  int count() const { return static_cast<int>(axes_.size()); }
  std::int64_t size(int axis) const { return axes_[static_cast<std::size_t>(axis)].size; }
  AxisSet all() const { return (AxisSet{1} << axes_.size()) - 1; }
  /// Product of the sizes.
  int num_ranks(AxisSet set) const;
  /// The same, as ranks in a node × nodes.
  Factor factor(AxisSet set) const;
  int coordinate(int axis, int rank) const;
  /// Position of @p rank among those that differ from it along @p set alone.
  int index(AxisSet set, int rank) const;
  /// These ranks, by index.
  std::vector<int> group(AxisSet set, int rank) const;
  /// Axes of @p among whose product is @p degree: those in @p preferred before others, earlier before later. nullopt:
  /// there are none.
  std::optional<AxisSet> choose(const Factor& degree, AxisSet among, AxisSet preferred = 0) const;

 private:
  struct Axis {
    int size = 1;
    int stride = 1;  ///< ranks from one coordinate to the next
    bool across_nodes = false;
  };
  std::vector<Axis> axes_;
};

/// What every axis does to a tensor of samples and features: splits the one or the other, leaves partial sums, or, in
/// none of the sets, copies.
struct TensorLayout {
  AxisSet samples = 0;   ///< S0
  AxisSet features = 0;  ///< S1
  AxisSet partial = 0;   ///< P
  bool operator==(const TensorLayout&) const = default;
};
/// "S0:2x1,B:1x2": ranks in a node × nodes; what does nothing is left out.
std::string to_text(const TensorLayout& layout, const AtomicAxes& axes);

/// The axes that the three degrees of a linear's layout are, see Layout.
struct LayoutAxes {
  AxisSet p0 = 0, p1 = 0, p2 = 0;
  MatmulAlgorithm algorithm = MatmulAlgorithm::local;
  bool operator==(const LayoutAxes&) const = default;
  bool is_summa() const { return algorithm == MatmulAlgorithm::summa; }
  AxisSet samples() const { return is_summa() ? p0 | p1 : p0; }
  /// What the product reads, and what it leaves: partial sums, where it is local.
  TensorLayout input() const { return {.samples = samples(), .features = p2}; }
  TensorLayout output() const {
    return is_summa() ? input() : TensorLayout{.samples = p0, .features = p1, .partial = p2};
  }
  /// Which axes split the weight's inputs, and its outputs, and over which it has copies.
  AxisSet weight_inputs() const { return is_summa() ? p0 : p2; }
  AxisSet weight_outputs() const { return is_summa() ? p2 : p1; }
  AxisSet weight_copies() const { return is_summa() ? p1 : p0; }
};

/// The axes into whose digits a dim is cut, the outermost first.
using AxisOrder = std::vector<int>;
AxisSet set_of(const AxisOrder& order);

/// A dim and how it is cut.
struct DimCut {
  AxisOrder axes;
  std::int64_t size = 1;     ///< elements
  std::int64_t granule = 1;  ///< elements that stay together, the features of a head; divides `size`
  bool operator==(const DimCut&) const = default;
};
/// Whether all parts are equal.
bool divides(const AtomicAxes& axes, const DimCut& cut);
/// Elements of every part but the last ones.
std::int64_t part_size(const AtomicAxes& axes, const DimCut& cut);
/// What of a dim a rank holds by @p held, some of the axes that cut it: those digits are the rank's coordinates.
DimPart part_of(const AtomicAxes& axes, const DimCut& cut, AxisSet held, int rank);

}  // namespace strata
