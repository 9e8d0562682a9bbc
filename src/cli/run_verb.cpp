/// @file
/// `strata run`: trains and measures the points of an experiment.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "run/run_experiment.hpp"

namespace strata::cli {
namespace {

void add_run(const CommandLine& line) {
  const auto arguments = std::make_shared<run::RunArguments>();
  const auto then = std::make_shared<std::vector<std::tuple<std::string, std::string, std::int64_t>>>();
  CLI::App* run = add_verb(line.app, "run",
                           "train and measure, under mpiexec or srun; without --point all points for this many ranks",
                           "mpiexec -n 2 strata run experiments/first.toml --set train.steps=20");
  add_experiment_options(*run, arguments->experiment, true);
  add_results_option(*run, arguments->results_folder);
  run->add_flag("--quiet", arguments->quiet, "no line a step");
  run->add_option("--paths-from", arguments->experiment.paths_from,
                  "paths in the experiment are relative to this file instead")
      ->type_name("FILE.toml");
  // What a batch script says of the launch; recorded, and but for what follows without effect on the run.
  for (CLI::Option* option :
       {run->add_option("--launch", arguments->launch, "name of the launch in its submission")->type_name("NAME"),
        run->add_option("--job", arguments->job, "id of the scheduler's job")->type_name("ID"),
        run->add_option("--block", arguments->block, "head to head: number of the block")->type_name("NUMBER"),
        run->add_option("--block-order", arguments->block_order, "place in the block")->type_name("NUMBER"),
        run->add_option("--block-seed", arguments->block_seed, "of the orders of blocks")->type_name("NUMBER"),
        run->add_option("--then", *then, "what follows in the block: name of the launch, point, place in the block")
            ->type_name("NAME POINT NUMBER")}) {
    option->group("Batch scripts");
  }
  run->callback([line, arguments, then] {
    for (const auto& [launch, point, order] : *then) arguments->then.push_back({launch, point, order});
    line.exit_code = run::run_experiment(line.argc, line.argv, *arguments, line.environment);
  });
}

}  // namespace

Verb run_verb() { return {.place = 700, .add = add_run}; }

}  // namespace strata::cli
