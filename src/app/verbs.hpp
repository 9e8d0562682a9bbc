#pragma once

/// @file
/// The sub-commands, one function each, in one file each. Each returns the exit code (outcome.hpp) and throws what bad
/// input throws.

#include <optional>
#include <string>
#include <vector>

#include "app/environment.hpp"

namespace strata::app {

/// What most verbs are given.
struct ExperimentArguments {
  std::string file;
  std::vector<std::string> overrides;  ///< --set key=value
  std::optional<int> point;            ///< --point K
  std::string plan_file;               ///< --plan
};

int list_strategies();
int list_models(const std::string& flops_convention, std::int64_t sequence_length);
int list_clusters();
/// The experiment-file reference, markdown.
int print_reference();
int expand_experiment(const ExperimentArguments& arguments, bool json);
int print_plan(const ExperimentArguments& arguments);
int print_program(const ExperimentArguments& arguments, int rank);
/// All ranks' Programs as a GOAL schedule, with the kernels' times that [simulate] asks for.
int print_goal(const ExperimentArguments& arguments);
/// The same as Chakra execution traces: `<experiment>.<rank>.et` of each rank and `<experiment>.comm_groups.json` in
/// @p folder, which is made. @throws UserError if something is in it already.
int write_chakra(const ExperimentArguments& arguments, const std::string& folder);

struct RunArguments {
  ExperimentArguments experiment;
  std::string results_folder = "results";
  bool quiet = false;
};
/// Starts MPI. Under mpiexec or srun every rank calls it.
int run_experiment(int argc, char** argv, const RunArguments& arguments, const Environment& environment);

struct SimulateArguments {
  ExperimentArguments experiment;
  std::string results_folder = "results";
  std::string trace_file;  ///< Chrome trace of the point's first step; empty: none
};
int simulate_experiment(const SimulateArguments& arguments, const Environment& environment);

struct ProfileArguments {
  ExperimentArguments experiment;
  std::string output_file;
};
/// Starts MPI, as run does.
int profile_experiment(int argc, char** argv, const ProfileArguments& arguments, const Environment& environment);

/// Verbs that live once, in the Python package: replaces this process. @param package_arguments e.g. {"collect",
/// "results/x"}.
int start_analysis(const std::vector<std::string>& package_arguments);

}  // namespace strata::app
