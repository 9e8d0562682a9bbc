#pragma once

/// @file
/// Seconds of a collective: by α and β of the link class it crosses, which is AutoDDL's table 2 with section 4.2.3 for
/// nodes of several devices, or by the formulas of the simulator, which know more than one algorithm.

#include <optional>
#include <span>
#include <string>

#include "base/collective.hpp"
#include "cost/fit.hpp"
#include "ir/machine/cluster.hpp"
#include "ir/plan/plan.hpp"
#include "planners/planner.hpp"

namespace strata {

struct LinkCosts {
  double inside_alpha_seconds = 0.0, inside_beta_seconds_per_byte = 0.0;
  double across_alpha_seconds = 0.0, across_beta_seconds_per_byte = 0.0;
  bool counts_bytes = false;  ///< cost = "volume": the cost is bytes, whatever link they cross
  /// cost = "analytic": nccl_like_seconds on this cluster instead of α and β. All groups of a node run at once and
  /// share its NICs.
  std::optional<Cluster> network{};
  int ranks_per_node = 1;  ///< of the job
  std::string unknown{};   ///< why nobody knows them; empty: they are known

  bool are_known() const { return unknown.empty(); }
  /// Of a collective over @p group, two ranks or more, in which each rank moves @p bytes, on average. One whose nodes
  /// are 1 stays inside the node. @param devices of a node, where it is known which: some pairs have links of their
  /// own, of which the network alone knows. @throws CostsUnknown.
  double seconds(Collective kind, double bytes, const Factor& group, std::span<const int> devices = {}) const;

 private:
  double seconds_on_network(Collective kind, double bytes, const Factor& group, std::span<const int> devices) const;
};

/// What the option `cost` names: volume (bytes alone), paper (rings at nameplate latency and bandwidth), analytic (what
/// the simulator takes for it, with the bandwidth that collectives reach), measured (rings by a line fitted to a
/// profile). Unknown where the cluster lacks a number, or the experiment a profile of such groups: a mode that has one
/// plan only does not ask.
LinkCosts link_costs_of(const PlanRequest& request);
OptionRow link_cost_option();

}  // namespace strata
