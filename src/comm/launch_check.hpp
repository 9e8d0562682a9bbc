#pragma once

/// @file
/// Is this the job that was asked for? Checked before anything is measured: a wrong launcher silently starts N jobs of
/// size one, or old binaries on some nodes. What was asked for comes in as data; nothing here reads the environment.

#include <cstdint>
#include <string>

#include "base/instruction_set.hpp"

namespace strata::comm {

class World;

struct LaunchExpectation {
  int num_ranks = 0;                                      ///< what the plan needs; 0: any
  int num_nodes = 0;                                      ///< 0: any
  int ranks_per_node = 0;                                 ///< 0: any, but the same on every node
  std::uint64_t binary_hash = 0;                          ///< of this rank's executable
  InstructionSet instruction_set = InstructionSet::avx2;  ///< this rank's: another one rounds otherwise
};

/// Is the world as large as the launcher says? Before anything else: where each rank is a world of its own, it would
/// find other faults, and as many times as there are ranks. Collective. @param launcher_num_ranks 0: the launcher says
/// nothing.
/// @param launcher_variable where it says it, e.g. "SLURM_NTASKS". @throws LaunchMismatch, the same on every rank.
void check_launcher(const World& world, int launcher_num_ranks, const std::string& launcher_variable);

/// Collective. @throws LaunchMismatch, the same on every rank, with what was found and what was expected.
void check_launch(const World& world, const LaunchExpectation& expected);

}  // namespace strata::comm
