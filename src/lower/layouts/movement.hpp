#pragma once

/// @file
/// How a tensor comes from one layout to another: by one collective, or by a rank's taking its part of what it holds.

#include <cstdint>
#include <utility>
#include <vector>

#include "base/collective.hpp"
#include "lower/layouts/cut_tensor.hpp"
#include "lower/layouts/packing.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// One collective that changes a layout, with how tensors stand before and after it as what members send and receive.
struct Movement {
  Collective collective = Collective::all_gather;  ///< all_gather | reduce_scatter | all_to_all
  AxisSet axes = 0;                                ///< over which ranks; none: a rank takes its part of what it holds
  Packing from;                                    ///< of what this rank holds
  Packing to;                                      ///< of what it will hold
  std::int64_t longest = 0;  ///< part that a member sends, where parts are unequal; 0: they are equal
};

/// The way back of a collective whose gradients are added, or only moved.
Movement reversed(const Movement& step);

/// Those of one rank.
class Movements {
 public:
  /// @param axes outlive this.
  Movements(const AtomicAxes& axes, int rank) : axes_(axes), rank_(rank) {}

  /// By @p collective over the ranks along @p over.
  Movement between(const CutTensor& tensor, const TensorLayout& from, const TensorLayout& to, Collective collective,
                   AxisSet over);
  /// Without a collective: of what the rank holds, what @p to leaves it.
  Movement part(const CutTensor& tensor, const TensorLayout& from, const TensorLayout& to) const;

 private:
  /// From a layout to another one by a collective over axes.
  struct Moved {
    CutTensor tensor;
    TensorLayout from, to;
    Collective collective = Collective::all_gather;
    AxisSet over = 0;
    bool operator==(const Moved&) const = default;
  };
  const Movement& in_unequal_parts(const Moved& moved);

  const AtomicAxes& axes_;
  int rank_;
  std::vector<std::pair<Moved, Movement>> unequal_;  ///< known ones of what does not divide
};

}  // namespace strata
