#include "planners/layouts/summa_layouts.hpp"

#include "planners/layouts/candidates.hpp"
#include "planners/states/factors.hpp"

namespace strata {

std::vector<Layout> summa_layouts(const LayerChain& chain, const Factor& grid, const Factor& rows,
                                  const Factor& replicas) {
  const Factor columns = quotient(quotient(grid, replicas), rows);
  std::vector<Layout> layouts;
  for (const Layer& layer : chain.layers) {
    if (!layer.is_searched) {
      layouts.push_back(replicated_layout(grid));
    } else if (!layer.is_embedding) {
      layouts.push_back({.p0 = rows, .p1 = replicas, .p2 = columns});
    } else if (layer.shares_weight) {
      layouts.push_back({.p0 = replicas, .p1 = rows, .p2 = columns});
    } else {
      layouts.push_back({.p0 = replicas, .p1 = columns, .p2 = rows});
    }
  }
  return layouts;
}

}  // namespace strata
