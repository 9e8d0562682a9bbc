#pragma once

/// @file
/// The layouts of SUMMA: every product on one grid of rows × columns. Source: van de Geijn and Watts, 1997.

#include <vector>

#include "planners/layouts/layers.hpp"

namespace strata {

/// By layer: linears (rows, replicas, columns), by panels; embeddings look up, with words over rows and features over
/// columns, or, where a head shares the table, the other way round, as the head's panels have it; what is not searched
/// is data parallel on all of @p grid.
std::vector<Layout> summa_layouts(const LayerChain& chain, const Factor& grid, const Factor& rows,
                                  const Factor& replicas);

}  // namespace strata
