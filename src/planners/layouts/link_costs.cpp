#include "planners/layouts/link_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "cost/collective_formulas.hpp"
#include "cost/peak_rate.hpp"

namespace strata {

double LinkCosts::seconds(Collective kind, double bytes, const Factor& group) const {
  return seconds(ring_steps(kind, group.total()), bytes, group);
}

double LinkCosts::seconds(int steps, double bytes, const Factor& group) const {
  if (counts_bytes) return bytes;
  if (group.nodes == 1) return steps * inside_alpha_seconds + bytes * inside_beta_seconds_per_byte;
  const double groups_of_a_node = static_cast<double>(ranks_per_node) / group.in_node;
  const double waiting = nics_per_node == 0 ? 1.0 : std::max(1.0, groups_of_a_node / nics_per_node);
  return steps * across_alpha_seconds + bytes * across_beta_seconds_per_byte * waiting;
}

OptionRow link_cost_option() {
  return {
      "cost", std::string("analytic"), "volume | paper | analytic | measured",
      "what a transfer costs: its bytes alone, or latency and bandwidth of the cluster, as it states them (paper) or "
      "as collectives reach them (analytic), or as a profile of this machine has them (measured)"};
}

LinkCosts link_costs_of(const PlanRequest& request) {
  const std::string cost = request.option<std::string>("cost");
  const Cluster& cluster = request.cluster;
  const Mesh& mesh = request.base.mesh;
  const auto lacks = [&](std::string_view what) {
    throw Unsupported(fmt::format(
        "{} on {} ranks: cost = \"{}\" needs {}, and cluster {} has none; name a described cluster, or set "
        "strategy.cost = \"volume\"",
        request.base.strategy, mesh.num_ranks(), cost, what, cluster.name.empty() ? "(unnamed)" : cluster.name));
  };
  LinkCosts costs{.ranks_per_node = mesh.ranks_per_node};
  if (cost == "volume") {
    costs.counts_bytes = true;
    return costs;
  }
  const bool has_inside = mesh.ranks_per_node > 1, has_across = mesh.nodes > 1;
  if (cost == "measured") {
    if (!request.measured_links) lacks("a profile");
    const LinkLines lines = request.measured_links();
    if (has_inside && lines.num_inside == 0) lacks("collectives measured inside a node");
    if (has_across && lines.num_across == 0) lacks("collectives measured across nodes");
    costs.inside_alpha_seconds = lines.inside.alpha_seconds;
    costs.inside_beta_seconds_per_byte = lines.inside.beta_seconds_per_byte;
    costs.across_alpha_seconds = lines.across.alpha_seconds;
    costs.across_beta_seconds_per_byte = lines.across.beta_seconds_per_byte;
    return costs;
  }
  if (has_inside && cluster.intra_node.bandwidth_bytes_per_second == 0.0) {
    lacks("intra_node.bandwidth_bytes_per_second");
  }
  if (has_across && cluster.inter_node.bandwidth_bytes_per_second == 0.0) {
    lacks("inter_node.bandwidth_bytes_per_second");
  }
  const bool is_paper = cost == "paper";
  const auto beta = [&](const Link& link) {
    const double bandwidth = is_paper ? link.bandwidth_bytes_per_second : effective_bandwidth(link);
    return bandwidth > 0.0 ? 1.0 / bandwidth : 0.0;
  };
  costs.inside_alpha_seconds = cluster.intra_node.latency_seconds;
  costs.inside_beta_seconds_per_byte = beta(cluster.intra_node);
  costs.across_alpha_seconds = cluster.inter_node.latency_seconds;
  costs.across_beta_seconds_per_byte = beta(cluster.inter_node);
  costs.nics_per_node = is_paper ? 0 : cluster.nics_per_node;
  return costs;
}

}  // namespace strata
