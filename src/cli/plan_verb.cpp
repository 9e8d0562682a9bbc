/// @file
/// `strata plan`: what the strategy decides for a point.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "cli/analysis_package.hpp"
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

struct PlanArguments {
  predict::ExperimentArguments experiment;
  std::string format = "toml";
  bool explains = false;
  std::string page_file;  ///< empty: none
};

int show_plan(const PlanArguments& arguments, const Environment& environment) {
  const bool explains = arguments.explains || !arguments.page_file.empty();
  if (arguments.format == "mps") {
    if (explains) throw UserError("plan --format mps: what a planner searches; --explain is about what it finds");
    print_linear_program(arguments.experiment);
    return exit_ok;
  }
  const predict::PreparedPoint point = predict::prepare_selected(arguments.experiment);
  if (explains) {
    std::vector<std::string> words = {"explain"};
    if (!arguments.page_file.empty()) words.insert(words.end(), {"--page", arguments.page_file});
    return start_analysis(words, environment, to_text(point.plan));
  }
  say("{}", to_text(point.plan));
  if (point.experiment.evaluate.every > 0) {
    say("# evaluation of {} samples at a time: {} bytes beside the training's\n", predict::evaluation_batch(point),
        predict::evaluation_arena_bytes(point, predict::lower_job(point)));
  }
  return exit_ok;
}

void add_plan(const CommandLine& line) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* plan = add_verb(
      line.app, "plan", "what the strategy decides for a point; edit it and pass it back with --plan",
      "strata plan experiments/first.toml > first.plan && strata program experiments/first.toml --plan first.plan");
  add_experiment_options(*plan, arguments->experiment, true);
  plan->add_option("--format", arguments->format,
                   "toml: the plan; mps: the integer linear program that the planner searches, for any solver (oases)")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"toml", "mps"}));
  plan->add_flag("--explain", arguments->explains,
                 "the plan in words instead, and why: what its decisions save, and what other modes plan beside it");
  plan->add_option("--page", arguments->page_file, "--explain, and as a page with a picture of time against memory")
      ->type_name("FILE.html");
  plan->callback([line, arguments] { line.exit_code = show_plan(*arguments, line.environment); });
}

}  // namespace

Verb plan_verb() { return {.place = 400, .add = add_plan}; }

}  // namespace strata::cli
