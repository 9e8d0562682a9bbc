/// @file
/// `strata plan`: what the strategy decides for a point.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/console.hpp"
#include "base/exit_code.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "predict/selected_point.hpp"

namespace strata::cli {
namespace {

void add_plan(const CommandLine& line) {
  const auto arguments = std::make_shared<predict::ExperimentArguments>();
  CLI::App* plan = add_verb(
      line.app, "plan", "what the strategy decides for a point; edit it and pass it back with --plan",
      "strata plan experiments/first.toml > first.plan && strata program experiments/first.toml --plan first.plan");
  add_experiment_options(*plan, *arguments, true);
  plan->callback([line, arguments] {
    say("{}", to_text(predict::prepare_selected(*arguments).plan));
    line.exit_code = exit_ok;
  });
}

}  // namespace

Verb plan_verb() { return {.place = 400, .add = add_plan}; }

}  // namespace strata::cli
