/// @file
/// What a Program says must be saved: every element of every parameter once among the ranks that share it, with the
/// states of its optimizer.

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "ir/program/training_state.hpp"
#include "lower/lower.hpp"
#include "models/model.hpp"

namespace strata::test_training_state {
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

/// Where ranks take a micro-batch each the last one updates. Of what others go on to read of the step before they keep
/// that version, and nothing of what comes to them before they read it.
TEST(TrainingState, ReplicasKeepTheVersionThatTheyGoOnToRead) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {7, 5, 6, 4}});
  for (const int spare : {0, 1}) {
    for (const auto& [fresh, stale_parameters] :
         std::map<std::string, std::size_t>{{"none", 6}, {"v2", 2}, {"11 11", 0}}) {
      Plan plan;
      plan.strategy = "cyclic";
      plan.mesh = {.nodes = 1, .ranks_per_node = 2, .axes = {{"micro_batch", 2}}};
      plan.stages.count = 2;
      plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = 2, .fresh = fresh};
      plan.schedule.spare_stages = spare;
      plan.global_batch = 4;
      plan.optimizer.kind = "sgd";
      const auto kept_by = [&](int rank, std::int64_t last_step) {
        return kept_parts(lower(plan, graph, rank, [](const Program&, const Instruction&) { return 0; }), last_step);
      };
      for (const std::int64_t last_step : {3, 4}) {
        const std::vector<KeptPart> reader = kept_by(0, last_step), updater = kept_by(1, last_step);
        EXPECT_EQ(reader.size(), stale_parameters) << fresh << ", " << spare << " spare";
        for (const KeptPart& part : reader) EXPECT_TRUE(part.states.empty() && part.previous) << part.parameter;
        EXPECT_EQ(updater.size(), graph.parameters.size());
        for (const KeptPart& part : updater) {
          EXPECT_EQ(part.states.size(), 2U) << part.parameter;
          EXPECT_EQ(part.previous.has_value(), fresh == "none") << part.parameter;
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_training_state
