#pragma once

/// @file
/// Which layouts a layer may have on R ranks a node × N nodes: every (p0, p1, p2) with p0·p1·p2 = R×N in both
/// components, less what memory or sizes forbid.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan/plan.hpp"
#include "planners/layouts/layers.hpp"

namespace strata {

/// Every layout of @p grid, p0 falling, then p1 falling; ranks in a node count before nodes.
std::vector<Layout> all_layouts(const Factor& grid);

/// p0 is everything: data parallel.
Layout replicated_layout(const Factor& grid);
/// What a home says of an operator without a layer of its own: rows over p0, features over the rest.
Layout home_layout(const Layout& layout, const Factor& grid);

struct LayoutLimits {
  std::int64_t samples = 1;  ///< of a micro-batch, over all ranks
  int max_p0 = 0;            ///< copies of a weight; 0: no cap. Source: AutoDDL sec. 4.5.2
};

/// The first thing that @p layout breaks for @p layer, with its numbers; empty: it may have it. What is cut need not
/// divide evenly (partition/tensor_layout), but no layout is chosen that cuts into more parts than there are samples,
/// features or heads: volumes and bytes are those of the mean part, and ranks without any would be idle. Samples are
/// cut by p0, the input's features by p1·p2 (they come from and go to such a cut; those of data by p2), output features
/// and whatever works at the home by p1·p2, a vocabulary by p2. By panels: samples by
/// p0·p1, the input's features by the number of panels, output features and whatever works at the home by p2.
std::string broken_limit(const Layer& layer, const Layout& layout, const LayoutLimits& limits);

/// Those of @p all that break nothing. Of a layer that is not searched the replicated one.
/// @throws Unsupported where none is left: names the layer and what the last candidate broke.
std::vector<Layout> candidates(const Layer& layer, const std::vector<Layout>& all, const LayoutLimits& limits);

/// "p0 4x1, p1 1x1, p2 2x1".
std::string to_string(const Layout& layout);

}  // namespace strata
