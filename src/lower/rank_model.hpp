#pragma once

/// @file
/// The model as one rank sees it, for the samples that are computed together: sub-batches may differ by a sample a
/// rank, and nothing but sizes differs with them.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/layouts/laid_out_graph.hpp"
#include "lower/layouts/layout_collectives.hpp"
#include "partition/recomputation.hpp"

namespace strata {

struct RankModel {
  struct SubBatch {
    std::size_t size = 0;           ///< which of `sizes`
    std::int64_t first_sample = 0;  ///< over all ranks, of the micro-batch
  };
  std::vector<LaidOutGraph> sizes;        ///< of different numbers of samples
  std::vector<SubBatch> sub_batches;      ///< of every micro-batch
  LayoutCollectives collectives;          ///< of any of `sizes`
  std::vector<RecomputedRegion> regions;  ///< the same

  /// Of any sub-batch: for what does not depend on samples.
  const LaidOutGraph& any() const { return sizes.front(); }
  const LaidOutGraph& of(int sub_batch) const { return sizes[sub_batches[static_cast<std::size_t>(sub_batch)].size]; }
};

/// @throws UserError, Unsupported as lower().
RankModel rank_model(const Plan& plan, const ModelGraph& graph, int rank);

}  // namespace strata
