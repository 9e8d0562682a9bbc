#include "planners/layouts/link_costs.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.hpp"
#include "cost/collective_formulas.hpp"
#include "planners/missing_costs.hpp"

namespace strata {

double LinkCosts::seconds(Collective kind, double bytes, const Factor& group, std::span<const int> devices) const {
  if (!are_known()) throw CostsUnknown(unknown);
  if (counts_bytes) return bytes;
  if (network) return seconds_on_network(kind, bytes, group, devices);
  const int members = group.total(), steps = ring_steps(kind, members);
  // Of what a root sends, or is sent, each rank in the chain passes on all.
  if (is_rooted(kind)) bytes *= static_cast<double>(members) / (members - 1);
  if (group.nodes == 1) return steps * inside_alpha_seconds + bytes * inside_beta_seconds_per_byte;
  return steps * across_alpha_seconds + bytes * across_beta_seconds_per_byte;
}

double LinkCosts::seconds_on_network(Collective kind, double bytes, const Factor& group,
                                     std::span<const int> devices) const {
  const double moved_share = static_cast<double>(ring_steps(kind, group.total())) / group.total();
  const double alone =
      nccl_like_seconds(kind, std::llround(bytes / moved_share), group, intra_link(*network, devices), *network);
  const double groups_of_a_node = static_cast<double>(ranks_per_node) / group.in_node;
  const double nics_wanted = groups_of_a_node * nics_used(group, *network);
  return alone * std::max(1.0, nics_wanted / network->nics_per_node);
}

OptionRow link_cost_option() {
  return {"cost", std::string("analytic"), "volume | paper | analytic | measured",
          "what a transfer costs: its bytes alone, or the paper's rings by latency and bandwidth as the cluster states "
          "them "
          "(paper) or a profile of this machine has them (measured), or what the simulator takes for it (analytic)"};
}

namespace {

/// @throws CostsUnknown.
LinkCosts known_link_costs(const PlanRequest& request) {
  const std::string cost = request.option<std::string>("cost");
  const Cluster& cluster = request.cluster;
  const Mesh& mesh = request.base.mesh;
  const auto lacks = [&](std::string_view what) {
    refuse_without_costs(request, what, "set strategy.cost = \"volume\"");
  };
  LinkCosts costs;
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
  if (cost == "analytic" || cost == "authors") {  // Oases' authors differ in which sums they ask about
    costs.network = cluster;
    costs.ranks_per_node = mesh.ranks_per_node;
    return costs;
  }
  const auto beta = [](const Link& link) {
    return link.bandwidth_bytes_per_second > 0.0 ? 1.0 / link.bandwidth_bytes_per_second : 0.0;
  };
  costs.inside_alpha_seconds = cluster.intra_node.latency_seconds;
  costs.inside_beta_seconds_per_byte = beta(cluster.intra_node);
  costs.across_alpha_seconds = cluster.inter_node.latency_seconds;
  costs.across_beta_seconds_per_byte = beta(cluster.inter_node);
  return costs;
}

}  // namespace

LinkCosts link_costs_of(const PlanRequest& request) {
  try {
    return known_link_costs(request);
  } catch (const CostsUnknown& missing) {
    return {.unknown = missing.what()};
  }
}

}  // namespace strata
