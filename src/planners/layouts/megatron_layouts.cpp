#include "planners/layouts/megatron_layouts.hpp"

#include "planners/layouts/candidates.hpp"
#include "planners/states/factors.hpp"

namespace strata {

std::vector<Layout> megatron_layouts(const LayerChain& chain, const Factor& grid, const Factor& tensor) {
  return megatron_layouts(chain, grid, std::vector<Factor>(chain.layers.size(), tensor));
}

std::vector<Layout> megatron_layouts(const LayerChain& chain, const Factor& grid, std::span<const Factor> tensors) {
  std::vector<bool> by_columns(chain.layers.size(), true);
  for (std::size_t l = 0; l < chain.layers.size(); ++l) {
    // Rows of the embedding's table are words.
    if (chain.layers[l].is_embedding) by_columns[l] = false;
  }
  for (const LayerLink& link : chain.links) {  // rising by `to`
    if (link.is_branch && by_columns[static_cast<std::size_t>(link.from)]) {
      by_columns[static_cast<std::size_t>(link.to)] = false;
    }
  }
  std::vector<Layout> layouts;
  for (std::size_t l = 0; l < chain.layers.size(); ++l) {
    const Factor &tensor = tensors[l], data = quotient(grid, tensor);
    if (!chain.layers[l].is_searched) {
      layouts.push_back(replicated_layout(grid));
    } else if (by_columns[l]) {
      layouts.push_back({.p0 = data, .p1 = tensor, .p2 = {}});
    } else {
      layouts.push_back({.p0 = data, .p1 = {}, .p2 = tensor});
    }
  }
  return layouts;
}

}  // namespace strata
