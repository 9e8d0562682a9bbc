/// @file
/// `strata profile`: what this machine takes for the kernels and collectives of an experiment.

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "profile/profile_experiment.hpp"

namespace strata::cli {
namespace {

void add_profile(const CommandLine& line) {
  const auto arguments = std::make_shared<profile::ProfileArguments>();
  CLI::App* profile =
      add_verb(line.app, "profile",
               "measure kernels, collectives and their interference, under mpiexec or srun, for the points of an "
               "experiment",
               "mpiexec -n 2 strata profile experiments/first.toml --output this.toml");
  add_experiment_options(*profile, arguments->experiment, false);
  profile->add_option("--output", arguments->output_file, "profile to write; what is there already is kept")
      ->required()
      ->type_name("FILE.toml");
  profile->callback([line, arguments] {
    line.exit_code = profile::profile_experiment(line.argc, line.argv, *arguments, line.environment);
  });
}

}  // namespace

Verb profile_verb() { return {.place = 1300, .add = add_profile}; }

}  // namespace strata::cli
