#pragma once

/// @file
/// Which collectives the layouts of a model bring: over which ranks, and beside which operators.

#include <set>
#include <vector>

#include "lower/layouts/laid_out_graph.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// Different sets of axes over which collectives run: of redistributions, panels, copies of parameters, and of rows
/// that norms and losses need whole.
std::set<AxisSet> communicating_axes(const LaidOutGraph& model);

/// By operator: whether a collective that changes layouts ends its forward, or its backward, or stands in it. A sum of
/// all ranks counts where one rank makes all of it too, and so does what its reader's backward would sum: sub-batches
/// take turns at the same places whatever the degree.
struct LayoutCollectives {
  std::vector<bool> forward, backward;
};
LayoutCollectives layout_collectives(const LaidOutGraph& model);

}  // namespace strata
