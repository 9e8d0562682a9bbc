/// @file
/// The space that `auto` searches: whatever decisions of different papers come together, what a plan trains is what
/// `single` trains. Plans are reached by random moves, one decision after another; those that lowering refuses are not
/// in the space.

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <set>

#include "base/error.hpp"
#include "lower/lower.hpp"
#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/staged_networks.hpp"
#include "planners/joint/moves.hpp"
#include "planners/joint/plan_in_words.hpp"
#include "support/refusal.hpp"
#include "support/simulated_account.hpp"

namespace strata::test_joint_moves {
namespace {

class JointMoves : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};

  PlanRequest request_of(const Training& training) const {
    Plan base = training.plan;
    base.strategy = "auto";
    base.mesh.nodes = 2;
    base.mesh.ranks_per_node = world.size() / 2;
    return {.graph = training.graph,
            .cluster = training.cluster,
            .base = base,
            .options = find_planner("auto").with_defaults({})};
  }

  /// Equal requests give equal plans: one rank's is everybody's.
  Plan planned_by_one(const Training& training) const {
    const std::string text = world.rank() == 0 ? to_text(plan_of(training, "auto", world.size())) : "";
    return parse_plan(world.all_gather(text).front(), "plan.toml");
  }

  static bool can_be(const Plan& plan, const ModelGraph& graph) {
    if (!user_error([&] { verify(plan, graph); }).empty()) return false;
    const std::string why = refusal([&] {
      for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
        lower(plan, graph, rank, cpu::workspaces_of({}));
      }
    });
    return why.empty();
  }

  /// Plans that can be lowered, each by a few moves from the first combination of degrees or from one before it.
  /// Deterministic: all ranks walk alike. @param moved by dimension how many moves could be lowered.
  std::vector<Plan> walk(const PlanRequest& request, int num_plans, unsigned seed, std::map<Dimension, int>& moved) {
    const std::vector<ParallelDegrees> degrees = asked_degrees(request);
    std::vector<ParallelDegrees> with_whole_weights;
    std::ranges::copy_if(degrees, std::back_inserter(with_whole_weights),
                         [](const ParallelDegrees& d) { return d.tensor == 1; });
    std::mt19937 random(seed);
    const auto any = [&](const auto& of) -> const auto& { return of[random() % of.size()]; };
    std::vector<Plan> plans;
    std::set<std::string> known;
    Plan plan;
    for (int i = 0; std::ssize(plans) < num_plans && i < 40 * num_plans; ++i) {
      constexpr int steps_of_a_walk = 8;
      if (i % steps_of_a_walk == 0) {
        const std::string why = refusal(
            [&] { plan = plan_of_degrees(request, random() % 2 == 0 ? any(degrees) : any(with_whole_weights)); });
        if (!why.empty()) plan = request.base;
        if (plan.mesh.axes.empty() && plan.operators.empty()) plan.mesh.axes = {{"data", plan.mesh.num_ranks()}};
        // What is sharded can be in slices, and few moves in a row lead there.
        for (const Move& move : moves_of_states(request, plan)) {
          const bool is_taken = move.words == "all states over all copies" && random() % 2 == 0;
          if (is_taken && can_be(move.plan, request.graph)) plan = move.plan;
        }
      }
      const Dimension dimension = any(all_dimensions);
      std::vector<Move> moves = moves_of(dimension, request, plan, degrees);
      std::erase_if(moves, [&](const Move& move) { return move.plan == plan; });
      if (moves.empty()) continue;
      const Plan next = any(moves).plan;
      if (!can_be(next, request.graph)) continue;
      plan = next;
      ++moved[dimension];
      if (known.insert(to_text(plan)).second) plans.push_back(plan);
    }
    return plans;
  }
};

TEST_F(JointMoves, ExactInputsGiveEqualBits) {
  std::map<Dimension, int> moved;
  unsigned seed = 0;
  for (const auto& make : {exact_mlp, exact_tied, exact_skip}) {
    const Training training = make(4, 4);
    const Trained reference = train(training, "single", 1, world, engine);
    for (const Plan& plan : walk(request_of(training), 25, ++seed, moved)) {
      const Trained ours = train_plan(training, plan, world, engine);
      const std::string what = training.graph.name + ": " + plan_in_words(plan, training.graph);
      for (const auto& [name, values] : ours.parameters) {
        EXPECT_EQ(values, reference.parameters.at(name)) << name << ", " << what;
      }
      EXPECT_FLOAT_EQ(ours.losses.front(), reference.losses.front()) << what;  // a sum of exponentials
    }
  }
  for (const Dimension dimension : {Dimension::stages, Dimension::tensor, Dimension::states, Dimension::recompute,
                                    Dimension::sub_batches, Dimension::overlap}) {
    EXPECT_GT(moved[dimension], 0) << to_string(dimension);
  }
}

TEST_F(JointMoves, RealModelsTrainWhatSingleTrains) {
  std::map<Dimension, int> moved;
  for (const RealModel& model : staged_models()) {
    const std::string_view name = model.name;
    if (name != "gpt" && name != "llama") continue;
    Training training = with(build_model(model.options), 24, 4);
    training.steps = 3;
    training.learning_rate = 0.01;
    training.plan.optimizer.momentum = 0.5;
    training.plan.optimizer.clip_norm = 0.5;
    const Trained reference = train(training, "single", 1, world, engine);
    for (const Plan& plan : walk(request_of(training), 20, 3, moved)) {
      expect_same(train_plan(training, plan, world, engine), reference,
                  training.graph.name + ": " + plan_in_words(plan, training.graph));
    }
  }
  EXPECT_GT(moved[Dimension::slices], 0);
}

/// What the search takes, under memory that binds, and what it takes without the plans of single modes.
TEST_F(JointMoves, WhatTheSearchTakesTrainsWhatSingleTrains) {
  Training training = with(build_model({.name = "gpt-nano", .vocabulary = 101}), 16, 2);
  training.cluster.peak_flops_per_second = {{"f32", 1e10}};
  training.cluster.memory_bandwidth_bytes_per_second = 1e9;
  training.cluster.intra_node = {1e-6, 1e8};
  training.cluster.inter_node = {1e-5, 1e7};
  training.evaluation = simulated_account;
  training.nodes = 2;
  training.steps = 2;
  training.learning_rate = 0.01;
  const Program replica = lower(plan_of(training, "ddp", world.size()), training.graph, 0, cpu::workspaces_of({}));
  const Trained reference = train(training, "single", 1, world, engine);
  std::set<std::string> words;
  for (const double share : {1.0, 0.7, 0.5}) {
    for (const bool seeds : {true, false}) {
      training.options = {{"points", std::int64_t{2}}, {"beam", std::int64_t{1}}, {"seeds", seeds}};
      training.plan.device_capacity_bytes = std::llround(share * static_cast<double>(replica.arena_bytes));
      const Plan plan = planned_by_one(training);
      words.insert(plan_in_words(plan, training.graph));
      training.plan.device_capacity_bytes = 0;
      Plan uncapped = plan;
      uncapped.device_capacity_bytes = 0;
      expect_same(train_plan(training, uncapped, world, engine), reference, plan_in_words(plan, training.graph));
    }
  }
  EXPECT_GE(words.size(), 2U) << "memory binds";
}

}  // namespace
}  // namespace strata::test_joint_moves
