#pragma once

/// @file
/// What this machine takes for the kernels of an experiment's points and for collectives of every size on the groups
/// that they use, with as many ranks as it was started with. Kernels are timed where they will run: in steps of the
/// very Programs, all ranks at work, once without and once with communication beside them.

#include <string>

#include "base/environment.hpp"
#include "predict/selected_point.hpp"

namespace strata::profile {

struct ProfileArguments {
  predict::ExperimentArguments experiment;
  std::string output_file;
};

/// Starts MPI, as a run does. @return the exit code.
int profile_experiment(int argc, char** argv, const ProfileArguments& arguments, const Environment& environment);

}  // namespace strata::profile
