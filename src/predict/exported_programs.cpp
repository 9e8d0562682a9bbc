#include "predict/exported_programs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "cost/group_shape.hpp"
#include "cost/kernel_work.hpp"
#include "interchange/chakra.hpp"
#include "interchange/goal.hpp"
#include "ir/program/members.hpp"
#include "ir/program/repetition.hpp"
#include "predict/prediction.hpp"

namespace strata::predict {
namespace {

/// Collectives with the network to themselves, as a trace of the hardware would have them.
NodeCost node_cost(const CostModel& costs, const Program& program, const Instruction& in, const PreparedPoint& point) {
  if (!in.is_collective()) return {costs.kernel(program, in).seconds, bytes_touched(program, in)};
  const Collective kind = is_message(in) ? Collective::send : in.collective;
  const Placement place =
      placement(members_of(program, in), point.plan.mesh.ranks_per_node, point.leaves_that_matter());
  return {costs.collective(kind, priced_bytes(program, in), place).seconds, 0};
}

/// Of all ranks, one step each; where steps overlap, as many as meet, as one list.
std::vector<Program> exported_programs(const PreparedPoint& point) {
  std::vector<Program> programs;
  for (int rank = 0; rank < point.plan.mesh.num_ranks(); ++rank) programs.push_back(lower_for_cluster(point, rank));
  if (std::ranges::all_of(programs, is_repeated_alone)) return programs;
  const StepRange steps = steps_that_meet(programs);
  for (Program& program : programs) program = in_one_list(program, steps);
  return programs;
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (!file) throw UserError(path.string() + ": cannot be written");
}

}  // namespace

std::string goal_schedule(const PreparedPoint& point, const std::string& experiment_file) {
  const std::unique_ptr<CostModel> costs = cost_model(point, experiment_file);
  return to_goal(exported_programs(point),
                 [&](const Program& program, const Instruction& in) { return costs->kernel(program, in).seconds; });
}

void write_chakra(const PreparedPoint& point, const std::string& experiment_file, const std::string& folder) {
  const std::unique_ptr<CostModel> costs = cost_model(point, experiment_file);
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
  for (const Program& program : exported_programs(point)) {
    write_file(output / fmt::format("{}.{}.et", name, program.rank), writer.trace(program));
  }
  write_file(output / (name + ".comm_groups.json"), writer.communicator_groups());
}

}  // namespace strata::predict
