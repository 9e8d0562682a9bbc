#pragma once

/// @file
/// The sub-commands, one function each, in one file each. Each returns the exit code (base/exit_code.hpp) and throws
/// what bad input throws.

#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "predict/selected_point.hpp"

namespace strata::cli {

struct Command;

int list_strategies();
int list_models(const std::string& flops_convention, std::int64_t sequence_length);
int list_clusters();
int list_sites();
/// The experiment-file reference, markdown.
int print_reference();
/// @param shell "bash" or "zsh".
int print_completion(const Command& command_line, const std::string& shell);
int expand_experiment(const predict::ExperimentArguments& arguments, bool json);
int print_plan(const predict::ExperimentArguments& arguments);
struct OrderArguments {
  predict::ExperimentArguments experiment;
  std::optional<int> rank;   ///< --rank: of this one alone
  std::string picture_file;  ///< --picture: PNG, SVG or PDF instead of text
};
/// What the ranks of each stage compute in a step, in order.
int show_order(const OrderArguments& arguments, const Environment& environment);
int print_program(const predict::ExperimentArguments& arguments, int rank);
/// All ranks' Programs as a GOAL schedule, with the kernels' times that [simulate] asks for.
int print_goal(const predict::ExperimentArguments& arguments);
/// The same as Chakra execution traces: `<experiment>.<rank>.et` of each rank and `<experiment>.comm_groups.json` in
/// @p folder, which is made. @throws UserError if something is in it already.
int write_chakra(const predict::ExperimentArguments& arguments, const std::string& folder);

struct SubmitOptions {
  bool dry_run = false;
  bool emit = false;
  bool test_only = false;
};
struct SubmitArguments {
  predict::ExperimentArguments experiment;
  std::string results_folder = "results";
  std::string site = "slurm";
  SubmitOptions options;
};
int submit_experiment(const SubmitArguments& arguments, const Environment& environment);

struct ResumeArguments {
  std::string results;                  ///< `<results>/<experiment>`
  std::vector<std::string> classes;     ///< words of the status table; empty: all that is missing or failed
  std::string site;                     ///< empty: that of the last submission
  std::int64_t time_limit_minutes = 0;  ///< 0: as before
  SubmitOptions options;
};
int resume_experiment(const ResumeArguments& arguments, const Environment& environment);

struct StatusArguments {
  std::string results;  ///< `<results>/<experiment>`
  bool all = false;     ///< also what is good
  bool watch = false;
};
int show_status(const StatusArguments& arguments, const Environment& environment);

struct LaunchesArguments {
  std::string manifest;
  std::int64_t task = 0;
  std::string job;
  std::string nodes;
  bool job_ends = false;
};
/// For batch scripts: notes that the job starts, prints what it has to launch. Or, where the job is told to end, notes
/// which of its nodes are down.
int print_launches(const LaunchesArguments& arguments, const Environment& environment);

struct ValidateArguments {
  std::string file;            ///< CSV, see config/measured_runs.hpp
  std::string cluster;         ///< a name or a path
  bool rows = false;           ///< print the predictions as CSV instead of the table of errors
  bool sensitivities = false;  ///< with d ln(seconds) / d ln(parameter) of every fitted parameter
};
int validate(const ValidateArguments& arguments, const Environment& environment);

/// Verbs that live once, in the Python package: replaces this process. @param package_arguments e.g. {"collect",
/// "results/x"}. @param input its standard input; empty: that of this process.
int start_analysis(const std::vector<std::string>& package_arguments, const Environment& environment,
                   const std::string& input = "");

}  // namespace strata::cli
