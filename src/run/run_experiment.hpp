#pragma once

/// @file
/// The points of an experiment whose rank count is the world's, run one after the other.

#include <cstdint>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "predict/selected_point.hpp"

namespace strata::run {

/// What follows in the same block, in the same processes.
struct NextLaunch {
  std::string launch;    ///< its name in the submission
  std::string point_id;  ///< its experiment is beside that of the launch before: `<point>.toml`
  std::int64_t block_order = 0;
};

struct RunArguments {
  predict::ExperimentArguments experiment;
  std::string results_folder = "results";
  bool quiet = false;
  std::string launch;              ///< --launch: of a submission
  std::string job;                 ///< --job: of the scheduler
  std::int64_t block = -1;         ///< --block: head to head
  std::int64_t block_order = 0;    ///< --block-order
  std::int64_t block_seed = 0;     ///< --block-seed
  std::vector<NextLaunch> then{};  ///< --then, in this order
};

/// Starts MPI. Under mpiexec or srun every rank calls it. @return the exit code.
int run_experiment(int argc, char** argv, const RunArguments& arguments, const Environment& environment);

}  // namespace strata::run
