/// @file
/// `strata simulate`: what the points of an experiment would cost.

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "predict/simulate_experiment.hpp"

namespace strata::cli {
namespace {

void add_simulate(const CommandLine& line) {
  const auto arguments = std::make_shared<predict::SimulateArguments>();
  CLI::App* simulate =
      add_verb(line.app, "simulate",
               "what the points of an experiment would cost on its cluster; no MPI, results marked simulated",
               "strata simulate experiments/first.toml --set cluster=a100-2x8 --set simulate.cost=analytic");
  add_experiment_options(*simulate, arguments->experiment, true);
  add_results_option(*simulate, arguments->results_folder);
  simulate
      ->add_option("--jobs", arguments->num_processes,
                   "so many points at once; as many as there are cores if not given")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  simulate
      ->add_option("--trace", arguments->trace_file,
                   "write the first step of one rank of each kind, with its memory, as a Chrome trace (Perfetto)")
      ->type_name("FILE");
  simulate->callback(
      [line, arguments] { line.exit_code = predict::simulate_experiment(*arguments, line.environment); });
}

}  // namespace

Verb simulate_verb() { return {.place = 800, .add = add_simulate}; }

}  // namespace strata::cli
