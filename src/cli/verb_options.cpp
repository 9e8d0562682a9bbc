#include "cli/verb_options.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "base/error.hpp"

namespace strata::cli {

CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& help, const std::string& example) {
  CLI::App* verb = parent.add_subcommand(name, help);
  verb->footer("Example:  " + example);
  return verb;
}

void add_experiment_options(CLI::App& verb, predict::ExperimentArguments& arguments, bool takes_plan) {
  verb.add_option("experiment", arguments.file, "experiment file; `strata reference` has all of its options")
      ->required()
      ->type_name("FILE.toml");
  verb.add_option("--set", arguments.overrides, "override an option, e.g. train.steps=20; may be repeated")
      ->type_name("KEY=VALUE");
  verb.add_option("--point", arguments.point, "one point of the sweep, by its number in `strata expand`")
      ->type_name("NUMBER");
  if (takes_plan) {
    verb.add_option("--plan", arguments.plan_file, "a plan file to use instead of the planner's")->type_name("FILE");
  }
}

void add_results_option(CLI::App& verb, std::string& folder) {
  verb.add_option("--results", folder, "folder of the results: FOLDER/<experiment>/<point>")
      ->type_name("FOLDER")
      ->capture_default_str();
}

void add_submit_options(CLI::App& verb, harness::SubmitOptions& options) {
  verb.add_flag("--dry-run", options.dry_run, "print arrays, node-hours and every script; write and submit nothing");
  verb.add_flag("--emit", options.emit, "write the scripts; do not submit them");
  verb.add_flag("--test-only", options.test_only, "write the scripts and have Slurm check them; do not submit them");
}

void check_rank(int rank, const Plan& plan) {
  if (rank >= 0 && rank < plan.mesh.num_ranks()) return;
  throw UserError(fmt::format("--rank {}: accepted: 0 … {}", rank, plan.mesh.num_ranks() - 1));
}

}  // namespace strata::cli
