/// @file
/// Stages that begin in the middle of a block: what skips a cut travels through every stage between, and every bit is
/// what one rank computes; in the pipelines that update once a step, and where steps overlap.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mpi/exec/staged_networks.hpp"
#include "partition/stages.hpp"

namespace strata::test_cut_at_operators {
namespace {

class CutAtOperators : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};

  Plan plan_of(ScheduleKind kind, const Stages& stages, int micro_batches, const std::vector<MeshAxis>& axes) const {
    Plan plan;
    plan.strategy = "stages";
    for (const MeshAxis& axis : axes) plan.mesh.ranks_per_node *= axis.size;
    plan.mesh.axes = axes;
    plan.stages = stages;
    plan.global_batch = std::int64_t{2} * micro_batches;
    plan.optimizer = {.kind = "sgd", .momentum = 0.5, .weight_decay = 0.01};
    plan.schedule = {.kind = kind, .micro_batches = micro_batches};
    return plan;
  }

  static void expect_equal(const Trained& ours, const Trained& reference, const std::string& what) {
    for (const auto& [name, values] : ours.parameters) {
      EXPECT_EQ(values, reference.parameters.at(name)) << name << ", " << what;
      EXPECT_NE(values, reference.initial.at(name)) << name << " must have moved, " << what;
    }
  }
};

/// Two cuts in one attention, whose residual crosses both, then cuts at an addition and at an activation.
Stages inside_blocks(int count) {
  const std::vector<std::string> all = {"block[1].attn.core", "block[1].attn.proj", "block[3].mlp.gelu"};
  return {.count = count, .cut_at = "operator", .begins = {all.begin(), all.begin() + (count - 1)}};
}

ModelGraph gpt() {
  return build_model(
      {.name = "gpt-nano", .layers = 5, .vocabulary = 101, .sequence_length = 9, .dropout = 0.1, .tied_head = false});
}

/// Of one model every boundary of @p stages, tensor by tensor.
std::size_t most_tensors_across(const ModelGraph& graph, const Stages& stages) {
  std::size_t most = 0;
  for (const Stage& stage : cut_into_stages(graph, stages)) {
    most = std::max(most, tensors_across(graph, stage.first_operator).size());
  }
  return most;
}

TEST_F(CutAtOperators, PipelinesGiveEqualBits) {
  const int n = world.size();
  Training training = with(gpt(), 0, 1);
  training.steps = 2;
  training.learning_rate = 0.05;
  ASSERT_GT(most_tensors_across(training.graph, inside_blocks(n)), 1U) << "a residual";
  for (const Recompute recompute : {Recompute::none, Recompute::block}) {
    for (const int micro_batches : {1, 3}) {
      for (const ScheduleKind kind : {ScheduleKind::one_forward_one_backward, ScheduleKind::gpipe}) {
        const auto trained = [&](ScheduleKind of, const Stages& stages) {
          Plan plan = plan_of(of, stages, micro_batches, {{"stage", stages.count}});
          plan.recompute = recompute;
          return train_plan(training, plan, world, engine);
        };
        // gpipe adds micro-batches up in an order of its own.
        const bool is_gpipe = kind == ScheduleKind::gpipe;
        const Trained reference = trained(is_gpipe ? kind : ScheduleKind::simultaneous, {});
        const Trained ours = trained(kind, inside_blocks(n));
        expect_equal(ours, reference, fmt::format("{}, {} micro-batches", to_string(kind), micro_batches));
        EXPECT_EQ(ours.losses, reference.losses) << to_string(kind);
      }
    }
  }
}

TEST_F(CutAtOperators, ModelsCutByTheirCostsGiveEqualBits) {
  const int n = world.size();
  for (const RealModel& model : staged_models()) {
    if (std::string_view(model.name) == "gpt") continue;  // tied: added in another order
    Training training = with(build_model(model.options), 0, 1);
    training.learning_rate = 0.05;
    const auto trained = [&](ScheduleKind kind, int stages) {
      const Stages cut{.count = stages, .cut_by = "operators", .cut_at = "operator"};
      return train_plan(training, plan_of(kind, cut, 2, {{"stage", stages}}), world, engine);
    };
    expect_equal(trained(ScheduleKind::one_forward_one_backward, n), trained(ScheduleKind::simultaneous, 1),
                 std::string(model.name));
  }
}

/// A rank a stage, and a rank a micro-batch, to which no boundary of stages sends anything.
TEST_F(CutAtOperators, CyclicStepsGiveEqualBits) {
  const int n = world.size();
  Training training = with(gpt(), 0, 1);
  training.steps = 3;
  training.learning_rate = 0.05;
  for (const char* fresh : {"none", "v2"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      const auto trained = [&](int stage_ranks, int replicas) {
        Plan plan =
            plan_of(ScheduleKind::cyclic, inside_blocks(n), n, {{"stage", stage_ranks}, {"micro_batch", replicas}});
        plan.schedule.fresh = fresh;
        plan.recompute = recompute;
        return train_plan(training, plan, world, engine);
      };
      const Trained reference = trained(1, 1);
      expect_equal(trained(n, 1), reference, fmt::format("{}, a rank a stage", fresh));
      expect_equal(trained(1, n), reference, fmt::format("{}, a rank a micro-batch", fresh));
    }
  }
}

}  // namespace
}  // namespace strata::test_cut_at_operators
