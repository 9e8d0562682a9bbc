/// @file
/// Verbs that print a value and start nothing: expand, plan, program.

#include <fmt/core.h>

#include <memory>
#include <vector>

#include "app/outcome.hpp"
#include "app/prediction.hpp"
#include "app/prepared_point.hpp"
#include "app/selected_point.hpp"
#include "app/verbs.hpp"
#include "base/error.hpp"
#include "ir/goal.hpp"

namespace strata::app {
namespace {

PreparedPoint prepared(const ExperimentArguments& arguments) {
  const LoadedExperiment loaded = load_points(arguments, "cpu");
  const Point& point = selected_point(loaded, arguments);
  return arguments.plan_file.empty() ? prepare_point(point.experiment, arguments.file)
                                     : prepare_point_with_plan(point.experiment, arguments.file,
                                                               read_file(arguments.plan_file), arguments.plan_file);
}

}  // namespace

int expand_experiment(const ExperimentArguments& arguments, bool json) {
  const LoadedExperiment loaded = load_points(arguments, "cpu");
  fmt::print("{}\n", json ? to_json(loaded.expansion) : to_table(loaded.expansion));
  return exit_ok;
}

int print_plan(const ExperimentArguments& arguments) {
  fmt::print("{}", to_text(prepared(arguments).plan));
  return exit_ok;
}

int print_program(const ExperimentArguments& arguments, int rank) {
  const PreparedPoint point = prepared(arguments);
  if (rank < 0 || rank >= point.plan.mesh.num_ranks()) {
    throw UserError(fmt::format("--rank {}: accepted: 0 … {}", rank, point.plan.mesh.num_ranks() - 1));
  }
  fmt::print("{}", to_text(lower_for_cpu(point, rank)));
  return exit_ok;
}

int print_goal(const ExperimentArguments& arguments) {
  const PreparedPoint point = prepared(arguments);
  const std::unique_ptr<CostModel> costs = cost_model(point, arguments.file);
  std::vector<Program> programs;
  for (int rank = 0; rank < point.plan.mesh.num_ranks(); ++rank) programs.push_back(lower_for_cluster(point, rank));
  fmt::print("{}", to_goal(programs, [&](const Program& program, const Instruction& in) {
               return costs->kernel(program, in).seconds;
             }));
  return exit_ok;
}

}  // namespace strata::app
