/// @file
/// `strata expand`: the points of a sweep.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/console.hpp"
#include "base/exit_code.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "predict/check_inputs.hpp"
#include "predict/selected_point.hpp"

namespace strata::cli {
namespace {

void add_expand(const CommandLine& line) {
  struct Arguments {
    predict::ExperimentArguments experiment;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* expand = add_verb(line.app, "expand", "the points of a sweep, as a table or as JSON",
                              "strata expand experiments/quickstart.toml");
  add_experiment_options(*expand, arguments->experiment, false);
  expand->add_flag("--json", arguments->json, "JSON instead of a table");
  expand->callback([line, arguments] {
    const predict::LoadedExperiment loaded = predict::load_points(arguments->experiment, device_backend);
    predict::check_names(loaded.expansion.points, arguments->experiment.origin());
    say("{}\n", arguments->json ? to_json(loaded.expansion) : to_table(loaded.expansion));
    line.exit_code = exit_ok;
  });
}

}  // namespace

Verb expand_verb() { return {.place = 300, .add = add_expand}; }

}  // namespace strata::cli
