#include "profile/measured_machine.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/engine.hpp"
#include "predict/engine_options.hpp"
#include "predict/prepared_point.hpp"
#include "profile/engine_collectives.hpp"
#include "profile/measured_all_reduce.hpp"
#include "results/status.hpp"

namespace strata::profile {
namespace {

/// The slowest of the links that groups of @p ranks have, one group a rank.
Link link_within(const comm::World& world, const Experiment& experiment, cuda::Transport transport,
                 const std::vector<int>& ranks) {
  const auto num_members = static_cast<int>(ranks.size());
  if (num_members == 1) return {};
  const bool on_gpus = predict::is_on_gpus(experiment);
  if (on_gpus && transport == cuda::Transport::nccl) {
    return measure_all_reduce(world, num_members, cuda::nccl_collectives(world, ranks, max_all_reduced));
  }
  comm::Engine engine(world, predict::engine_options(experiment, 0));
  const int group = engine.create_group(ranks);
  const OperandMemory memory = on_gpus ? OperandMemory::managed : OperandMemory::host;
  return measure_all_reduce(world, num_members,
                            engine_collectives(engine, group, ranks, world.rank(), max_all_reduced, memory));
}

}  // namespace

Cluster measured_machine(const comm::World& world, const Experiment& experiment, cuda::Transport transport,
                         MeasuredPeak& peak) {
  for (int node = 0; node < world.num_nodes(); ++node) {
    if (world.ranks_on_node(node) == world.ranks_on_node(0)) continue;
    throw LaunchMismatch(fmt::format("{} ranks on node {} and {} on node {}: links are measured by as many on each",
                                     world.ranks_on_node(0), world.node_names().front(), world.ranks_on_node(node),
                                     world.node_names()[static_cast<std::size_t>(node)]));
  }
  Cluster machine = predict::machine_at_hand(experiment);
  std::vector<int> on_my_node, at_my_place;
  const int emulated = experiment.emulates_nodes() ? static_cast<int>(experiment.resources.ranks_per_node) : 0;
  const auto node_of = [&](int rank) { return emulated > 0 ? rank / emulated : world.node_of(rank); };
  const auto place_of = [&](int rank) { return emulated > 0 ? rank % emulated : world.local_rank_of(rank); };
  for (int rank = 0; rank < world.size(); ++rank) {
    if (node_of(rank) == node_of(world.rank())) on_my_node.push_back(rank);
    if (place_of(rank) == place_of(world.rank())) at_my_place.push_back(rank);
  }
  const DType dtype = dtype_of_word(experiment.train.dtype);
  machine.peak_flops_per_second[std::string(to_string(dtype))] = peak.flops_per_second(experiment, dtype);
  machine.memory_bandwidth_bytes_per_second = peak.memory_bytes_per_second(predict::is_on_gpus(experiment));
  machine.intra_node = link_within(world, experiment, transport, on_my_node);
  machine.inter_node = link_within(world, experiment, transport, at_my_place);
  machine.inter_node.bandwidth_bytes_per_second *= static_cast<double>(on_my_node.size());
  const std::string when = world.broadcast(results::to_iso_8601(results::unix_seconds_now()));
  machine.description = fmt::format("the machine strata runs on, measured {}", when);
  machine.sources = {{"peak_flops_per_second", MeasuredPeak::source(experiment)},
                     {"memory_bandwidth_bytes_per_second", "measured: copies by all ranks at once"},
                     {"intra_node", "measured: all-reduces of all nodes at once, each over its ranks"},
                     {"inter_node", "measured: all-reduces over the ranks at one place of their nodes, all at once"}};
  return machine;
}

}  // namespace strata::profile
