/// @file
/// `strata order`: what ranks compute in a step. A picture of it is drawn by the Python package.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "cli/analysis_package.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "ir/order/step_order.hpp"
#include "lower/lower.hpp"
#include "predict/selected_point.hpp"

namespace strata::cli {
namespace {

struct OrderArguments {
  predict::ExperimentArguments experiment;
  std::optional<int> rank;   ///< of this one alone
  std::string picture_file;  ///< instead of text
};

/// By place, with the ranks that @p rank leaves.
std::string order_text(const predict::PreparedPoint& point, std::optional<int> only_rank) {
  const std::vector<StepOrder> orders = step_orders(point.plan, point.graph);
  verify(orders);
  std::vector<std::vector<int>> ranks_of_place(orders.size());
  for (int rank = 0; rank < point.plan.mesh.num_ranks(); ++rank) {
    if (only_rank && rank != *only_rank) continue;
    ranks_of_place[static_cast<std::size_t>(place_of_rank(point.plan.mesh, rank))].push_back(rank);
  }
  std::string text;
  for (std::size_t place = 0; place < orders.size(); ++place) {
    if (ranks_of_place[place].empty()) continue;
    text += fmt::format("# ranks {} of {}\n{}", ranges(ranks_of_place[place]), point.plan.mesh.num_ranks(),
                        to_text(orders[place]));
  }
  return text;
}

int show_order(const OrderArguments& arguments, const Environment& environment) {
  const predict::PreparedPoint point = predict::prepare_selected(arguments.experiment);
  if (arguments.rank) check_rank(*arguments.rank, point.plan);
  const std::string text = order_text(point, arguments.rank);
  if (arguments.picture_file.empty()) {
    say("{}", text);
    return exit_ok;
  }
  if (arguments.rank) throw UserError("--picture: of all ranks; leave out --rank");
  const Schedule& schedule = point.plan.schedule;
  std::string title =
      fmt::format("{}: {}, {} micro-batches", point.graph.name, point.plan.strategy, schedule.micro_batches);
  if (schedule.sub_batches > 1) title += fmt::format(" of {} sub-batches", schedule.sub_batches);
  return start_analysis({"order", "--output", arguments.picture_file, "--title", title}, environment, text);
}

void add_order(const CommandLine& line) {
  const auto arguments = std::make_shared<OrderArguments>();
  CLI::App* order = add_verb(line.app, "order", "what ranks compute in a step, in order",
                             "strata order experiments/first.toml --picture order.png");
  add_experiment_options(*order, arguments->experiment, true);
  order->add_option("--rank", arguments->rank, "of this world rank alone")->type_name("NUMBER");
  order
      ->add_option(
          "--picture", arguments->picture_file,
          "draw it instead, forward 1, backward 2 and recomputation 1 unit long, sums between sub-batches as long as "
          "one's forward up to them: .png, .svg or .pdf")
      ->type_name("FILE");
  order->callback([line, arguments] { line.exit_code = show_order(*arguments, line.environment); });
}

}  // namespace

Verb order_verb() { return {.place = 500, .add = add_order}; }

}  // namespace strata::cli
