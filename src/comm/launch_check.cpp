/// @file
/// The launcher's count, world size, ranks a node and binaries against what was asked for.

#include "comm/launch_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/world.hpp"

namespace strata::comm {
namespace {

/// This rank's complaint, or an empty text. Only values that may differ between ranks are looked at here.
std::string complaint(const World& world, const LaunchExpectation& expected, std::uint64_t hash_of_rank_0,
                      InstructionSet set_of_rank_0) {
  if (expected.binary_hash != hash_of_rank_0) {
    return fmt::format("the executable on node {} (hash {:016x}) is not the one of rank 0 on node {} ({:016x})",
                       world.node_names()[static_cast<std::size_t>(world.node())], expected.binary_hash,
                       world.node_names()[static_cast<std::size_t>(world.node_of(0))], hash_of_rank_0);
  }
  if (expected.instruction_set != set_of_rank_0) {
    return fmt::format(
        "the processor of node {} computes with {}, that of rank 0 on node {} with {}, and their results would not be "
        "equal; STRATA_MAX_CPU_ISA={} holds all ranks to one set",
        world.node_names()[static_cast<std::size_t>(world.node())], to_string(expected.instruction_set),
        world.node_names()[static_cast<std::size_t>(world.node_of(0))], to_string(set_of_rank_0),
        to_string(std::min(expected.instruction_set, set_of_rank_0)));
  }
  if (expected.num_ranks != 0 && expected.num_ranks != world.size()) {
    return fmt::format("the plan is for {} ranks but {} were started", expected.num_ranks, world.size());
  }
  if (expected.num_nodes != 0 && expected.num_nodes != world.num_nodes()) {
    return fmt::format("the plan is for {} nodes but the {} ranks run on {}", expected.num_nodes, world.size(),
                       world.num_nodes());
  }
  const int ranks_per_node = expected.ranks_per_node != 0 ? expected.ranks_per_node : world.ranks_on_node(0);
  for (int node = 0; node < world.num_nodes(); ++node) {
    if (world.ranks_on_node(node) != ranks_per_node) {
      return fmt::format("node {} runs {} ranks but {} {}", world.node_names()[static_cast<std::size_t>(node)],
                         world.ranks_on_node(node),
                         expected.ranks_per_node != 0 ? "the plan has" : "node " + world.node_names()[0] + " runs",
                         ranks_per_node);
    }
  }
  return "";
}

}  // namespace

void check_launcher(const World& world, int launcher_num_ranks, const std::string& launcher_variable) {
  on_all_ranks(world, [&] {
    if (launcher_num_ranks == 0 || launcher_num_ranks == world.size()) return;
    throw LaunchMismatch(fmt::format(
        "launch check: MPI started {} rank{} but {} is {}: launcher and MPI library do not understand each other "
        "(Slurm: srun --mpi=pmi2)",
        world.size(), world.size() == 1 ? "" : "s", launcher_variable, launcher_num_ranks));
  });
}

void check_launch(const World& world, const LaunchExpectation& expected) {
  const std::uint64_t hash_of_rank_0 = std::stoull(world.broadcast(std::to_string(expected.binary_hash)));
  const auto set_of_rank_0 = static_cast<InstructionSet>(
      std::stoi(world.broadcast(std::to_string(static_cast<int>(expected.instruction_set)))));
  on_all_ranks(world, [&] {
    const std::string text = complaint(world, expected, hash_of_rank_0, set_of_rank_0);
    if (text.empty()) return;
    throw LaunchMismatch(fmt::format("launch check, rank {} of {}: {}", world.rank(), world.size(), text));
  });
}

}  // namespace strata::comm
