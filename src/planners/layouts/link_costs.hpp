#pragma once

/// @file
/// Seconds of a collective by α and β of the link class it crosses: AutoDDL's table 2, and section 4.2.3 for nodes of
/// several devices.

#include "base/collective.hpp"
#include "cost/fit.hpp"
#include "ir/plan.hpp"
#include "planners/planner.hpp"

namespace strata {

struct LinkCosts {
  double inside_alpha_seconds = 0.0, inside_beta_seconds_per_byte = 0.0;
  double across_alpha_seconds = 0.0, across_beta_seconds_per_byte = 0.0;
  /// A node's ranks that may send at once at the β above; 0: all of them (the paper does not count them).
  int nics_per_node = 0;
  int ranks_per_node = 1;
  bool counts_bytes = false;  ///< cost = "volume": the cost is bytes, whatever link they cross

  /// Of a collective over @p group in which each rank moves @p bytes. One whose nodes are 1 stays inside the node. All
  /// groups of a node run at once.
  double seconds(Collective kind, double bytes, const Factor& group) const;
  /// Of @p steps messages one after another.
  double seconds(int steps, double bytes, const Factor& group) const;
};

/// What the option `cost` names: volume (bytes alone), paper (nameplate latency and bandwidth), analytic (the bandwidth
/// that collectives reach, where the cluster says it, shared by the ranks of a node), measured (fitted to a profile).
/// @throws Unsupported where the cluster lacks a number, or the experiment a profile of such groups.
LinkCosts link_costs_of(const PlanRequest& request);
OptionRow link_cost_option();

}  // namespace strata
