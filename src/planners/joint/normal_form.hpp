#pragma once

/// @file
/// One plan for all that have the same Programs but for choices about what they do not have: how shards are gathered,
/// say, where nothing is sharded.

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// @p plan, whose Programs stay as they are, with what an empty plan says of each such choice. Not all that is without
/// effect is found: which buckets sums go in where nothing is summed also says which gradients lie side by side. A plan
/// whose rules match nothing comes back as it is.
Plan in_normal_form(Plan plan, const ModelGraph& graph);

}  // namespace strata
