#pragma once

/// @file
/// The points of an experiment on a cluster that is described or was profiled, without MPI. The same plans and Programs
/// as a run, the same results file, marked simulated.

#include <string>

#include "base/environment.hpp"
#include "predict/selected_point.hpp"

namespace strata::predict {

struct SimulateArguments {
  ExperimentArguments experiment;
  std::string results_folder = "results";
  int num_processes = 0;   ///< so many points at once; 0: as many as there are cores
  std::string trace_file;  ///< Chrome trace of the point's first step; empty: none
};

/// @return the exit code. @throws UserError.
int simulate_experiment(const SimulateArguments& arguments, const Environment& environment);

}  // namespace strata::predict
