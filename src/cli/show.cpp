/// @file
/// Verbs that print a value: expand, plan, order, program. Traces, a file a rank, are written instead; a picture of an
/// order is drawn by the Python package.

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/read_file.hpp"
#include "cli/verbs.hpp"
#include "cost/group_shape.hpp"
#include "cost/kernel_work.hpp"
#include "ir/chakra.hpp"
#include "ir/goal.hpp"
#include "ir/order/step_order.hpp"
#include "lower/lower.hpp"
#include "predict/prediction.hpp"
#include "predict/prepared_point.hpp"
#include "predict/selected_point.hpp"

namespace strata::cli {
namespace {

predict::PreparedPoint prepared(const predict::ExperimentArguments& arguments) {
  const predict::LoadedExperiment loaded = predict::load_points(arguments, device_backend);
  const Point& point = predict::selected_point(loaded, arguments);
  return arguments.plan_file.empty()
             ? predict::prepare_point(point.experiment, arguments.file)
             : predict::prepare_point_with_plan(point.experiment, arguments.file, read_file(arguments.plan_file),
                                                arguments.plan_file);
}

/// Collectives with the network to themselves, as a trace of the hardware would have them.
NodeCost node_cost(const CostModel& costs, const Program& program, const Instruction& in,
                   const predict::PreparedPoint& point) {
  if (!in.is_collective()) return {costs.kernel(program, in).seconds, bytes_touched(program, in)};
  const std::vector<int>& ranks = program.groups[static_cast<std::size_t>(in.group)].ranks;
  const bool is_message = in.collective == Collective::send || in.collective == Collective::recv;
  std::vector<int> members = ranks;
  if (is_message) {
    const int peer = ranks[static_cast<std::size_t>(in.root)];
    const bool sends = in.collective == Collective::send;
    members = {sends ? program.rank : peer, sends ? peer : program.rank};
  }
  const Collective kind = is_message ? Collective::send : in.collective;
  const Placement place = placement(members, point.plan.mesh.ranks_per_node, point.leaves_that_matter());
  return {costs.collective(kind, full_bytes(program, in), place).seconds, 0};
}

void check_rank(int rank, const predict::PreparedPoint& point) {
  if (rank >= 0 && rank < point.plan.mesh.num_ranks()) return;
  throw UserError(fmt::format("--rank {}: accepted: 0 … {}", rank, point.plan.mesh.num_ranks() - 1));
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (!file) throw UserError(path.string() + ": cannot be written");
}

}  // namespace

int expand_experiment(const predict::ExperimentArguments& arguments, bool json) {
  const predict::LoadedExperiment loaded = predict::load_points(arguments, device_backend);
  fmt::print("{}\n", json ? to_json(loaded.expansion) : to_table(loaded.expansion));
  return exit_ok;
}

int print_plan(const predict::ExperimentArguments& arguments) {
  fmt::print("{}", to_text(prepared(arguments).plan));
  return exit_ok;
}

int show_order(const OrderArguments& arguments, const Environment& environment) {
  const predict::PreparedPoint point = prepared(arguments.experiment);
  if (arguments.rank) check_rank(*arguments.rank, point);
  const std::vector<StepOrder> orders = step_orders(point.plan, point.graph);
  verify(orders);
  std::vector<std::vector<int>> ranks_of_stage(orders.size());
  for (int rank = 0; rank < point.plan.mesh.num_ranks(); ++rank) {
    if (arguments.rank && rank != *arguments.rank) continue;
    ranks_of_stage[static_cast<std::size_t>(coordinate(point.plan.mesh, "stage", rank))].push_back(rank);
  }
  std::string text;
  for (std::size_t stage = 0; stage < orders.size(); ++stage) {
    if (ranks_of_stage[stage].empty()) continue;
    text += fmt::format("# ranks {} of {}\n{}", ranges(ranks_of_stage[stage]), point.plan.mesh.num_ranks(),
                        to_text(orders[stage]));
  }
  if (arguments.picture_file.empty()) {
    fmt::print("{}", text);
    return exit_ok;
  }
  if (arguments.rank) throw UserError("--picture: of all ranks; leave out --rank");
  const std::string title =
      fmt::format("{}: {}, {} micro-batches", point.graph.name, point.plan.strategy, point.plan.schedule.micro_batches);
  return start_analysis({"order", "--output", arguments.picture_file, "--title", title}, environment, text);
}

int print_program(const predict::ExperimentArguments& arguments, int rank) {
  const predict::PreparedPoint point = prepared(arguments);
  check_rank(rank, point);
  fmt::print("{}", to_text(predict::lower_for_run(point, rank)));
  return exit_ok;
}

int print_goal(const predict::ExperimentArguments& arguments) {
  const predict::PreparedPoint point = prepared(arguments);
  const std::unique_ptr<CostModel> costs = predict::cost_model(point, arguments.file);
  std::vector<Program> programs;
  for (int rank = 0; rank < point.plan.mesh.num_ranks(); ++rank)
    programs.push_back(predict::lower_for_cluster(point, rank));
  fmt::print("{}", to_goal(programs, [&](const Program& program, const Instruction& in) {
               return costs->kernel(program, in).seconds;
             }));
  return exit_ok;
}

int write_chakra(const predict::ExperimentArguments& arguments, const std::string& folder) {
  const predict::PreparedPoint point = prepared(arguments);
  const std::unique_ptr<CostModel> costs = predict::cost_model(point, arguments.file);
  const std::filesystem::path output(folder);
  std::error_code error;
  std::filesystem::create_directories(output, error);
  // A trace left by another job would be read as a rank of this one.
  if (!std::filesystem::is_directory(output, error) || !std::filesystem::is_empty(output, error) || error) {
    throw UserError(fmt::format("--output {}: must be an empty folder or one that can be made", folder));
  }
  ChakraWriter writer(
      [&](const Program& program, const Instruction& in) { return node_cost(*costs, program, in, point); });
  const std::string& name = point.experiment.name;
  for (int rank = 0; rank < point.plan.mesh.num_ranks(); ++rank) {
    write_file(output / fmt::format("{}.{}.et", name, rank), writer.trace(predict::lower_for_cluster(point, rank)));
  }
  write_file(output / (name + ".comm_groups.json"), writer.communicator_groups());
  return exit_ok;
}

}  // namespace strata::cli
