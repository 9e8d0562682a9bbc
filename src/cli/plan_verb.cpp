/// @file
/// `strata plan`: what the strategy decides for a point.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "predict/prediction.hpp"
#include "predict/selected_point.hpp"

namespace strata::cli {
namespace {

void print_linear_program(const predict::ExperimentArguments& arguments) {
  if (!arguments.plan_file.empty()) {
    throw UserError("plan --format mps: what a planner searches, but --plan " + arguments.plan_file + " is found");
  }
  const predict::LoadedExperiment loaded = predict::load_points(arguments, device_backend);
  say("{}", predict::linear_program(predict::selected_point(loaded, arguments).experiment, arguments.file));
}

void add_plan(const CommandLine& line) {
  const auto arguments = std::make_shared<predict::ExperimentArguments>();
  const auto format = std::make_shared<std::string>("toml");
  CLI::App* plan = add_verb(
      line.app, "plan", "what the strategy decides for a point; edit it and pass it back with --plan",
      "strata plan experiments/first.toml > first.plan && strata program experiments/first.toml --plan first.plan");
  add_experiment_options(*plan, *arguments, true);
  plan->add_option("--format", *format,
                   "toml: the plan; mps: the integer linear program that the planner searches, for any solver (oases)")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"toml", "mps"}));
  plan->callback([line, arguments, format] {
    line.exit_code = exit_ok;
    if (*format == "mps") return print_linear_program(*arguments);
    const predict::PreparedPoint point = predict::prepare_selected(*arguments);
    say("{}", to_text(point.plan));
    if (point.experiment.evaluate.every > 0) {
      say("# evaluation of {} samples at a time: {} bytes beside the training's\n", predict::evaluation_batch(point),
          predict::evaluation_arena_bytes(point, predict::lower_job(point)));
    }
  });
}

}  // namespace

Verb plan_verb() { return {.place = 400, .add = add_plan}; }

}  // namespace strata::cli
