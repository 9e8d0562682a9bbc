#pragma once

/// @file
/// What a graph does with its tensors, the same for all micro-batches: who reads them, and who has a gradient.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "partition/recomputation.hpp"

namespace strata {

struct TensorUses {
  /// @param regions of @p graph that are recomputed.
  TensorUses(const ModelGraph& graph, std::span<const RecomputedRegion> regions);

  /// An activation that one operator reads, and so many save for their backward: once they have read it nobody does.
  /// Inputs of the model are cheap, but they belong to whoever loaded them.
  bool has_one_reader(int tensor, int num_saved) const;

  std::vector<bool> needs_gradient;  ///< by tensor: an activation that depends on a parameter
  std::vector<bool> is_activation;   ///< by tensor
  std::vector<int> num_consumers;    ///< by tensor
  std::vector<int> num_saved_for;    ///< by tensor: operators whose backward reads it, or that run again and read it
};

}  // namespace strata
