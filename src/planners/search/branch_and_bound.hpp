#pragma once

/// @file
/// The cheapest strategy within a capacity, proven: variables are given their choices one after the other, and a
/// beginning of a strategy is left as soon as nothing that it could become is cheaper than the best one known.
///
/// What a beginning costs at least: its own cost, and of what is left the least cost plus a price for every byte
/// (Lagrange), which dynamic programming has for every beginning beforehand; less the price of all bytes that there
/// are. Several prices are asked, as the best one depends on what is left. Source: Geoffrion, Lagrangean relaxation for
/// integer programming, 1974; bucket elimination: Dechter, 1999.

#include <cstdint>
#include <span>

#include "planners/layouts/layout_problem.hpp"

namespace strata {

/// @p answer, a strategy that fits, becomes the cheapest one that fits, and its lower bound its cost. Where that takes
/// more tables or more beginnings than are worth it, its bound stays, and a cheaper strategy that was found is kept.
/// @param prices of a byte. @param most_beginnings that are looked at.
void prove_cheapest(const LayoutProblem& problem, std::span<const double> prices, SearchAnswer& answer,
                    std::int64_t most_beginnings = 400'000);

}  // namespace strata
