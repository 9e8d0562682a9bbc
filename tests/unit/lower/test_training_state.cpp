/// @file
/// What a Program says must be saved: every element of every parameter once among the ranks that share it, with the
/// states of its optimizer.

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "ir/program/training_state.hpp"
#include "lower/lower.hpp"
#include "models/model.hpp"

namespace strata {
namespace {

Plan sharded_plan(const std::string& optimizer, DType dtype, const std::string& sharding) {
  Plan plan;
  plan.strategy = "sharded";
  plan.mesh = {.nodes = 1, .ranks_per_node = 3, .axes = {{"data", 3}}};
  plan.global_batch = 6;
  const StateFactors factors{.p = {}, .g = {}, .os = {3, 1}};
  plan.operators = {OperatorRule{.match = "*", .state = factors}};
  plan.optimizer.kind = optimizer;
  plan.optimizer.sharding = sharding;
  plan.optimizer.spread = sharding == "intra_tensor" ? "all_gather" : "broadcast";
  plan.optimizer.gradients = "all_reduce";
  plan.dtypes.compute = dtype;
  return plan;
}

TEST(TrainingState, PartsOfAllRanksAreTheWholeOnce) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {7, 5, 4}});
  for (const auto& [optimizer, names] : std::map<std::string, std::vector<std::string>>{
           {"sgd", {"value", "momentum"}}, {"adam", {"value", "m", "v"}}, {"adamw", {"value", "m", "v"}}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::string sharding : {"intra_tensor", "inter_tensor"}) {
        const Plan plan = sharded_plan(optimizer, dtype, sharding);
        std::map<std::string, std::set<std::int64_t>> elements;
        for (int rank = 0; rank < 3; ++rank) {
          const Program program = lower(plan, graph, rank, [](const Program&, const Instruction&) { return 0; });
          for (const KeptPart& part : kept_parts(program, -1)) {
            std::vector<std::string> found;
            for (const KeptPart::State& state : part.states) {
              found.push_back(state.name);
              const Buffer& buffer = program.buffers[static_cast<std::size_t>(state.operand.buffer)];
              EXPECT_TRUE(buffer.persistent && buffer.dtype == DType::f32) << buffer.name;
              EXPECT_EQ(state.operand.num_elements, part.num_elements()) << buffer.name;
              EXPECT_EQ(buffer.parameter_begin + state.operand.begin, part.begin) << buffer.name;
            }
            EXPECT_EQ(found, names);
            for (std::int64_t i = 0; i < part.num_elements(); ++i) {
              EXPECT_TRUE(elements[part.parameter].insert(part.begin + i).second) << part.parameter << " " << i;
            }
          }
          EXPECT_EQ(held_weights(program).size(), graph.parameters.size());
        }
        for (const Parameter& parameter : graph.parameters) {
          EXPECT_EQ(elements[parameter.name].size(), static_cast<std::size_t>(parameter.num_elements()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata
