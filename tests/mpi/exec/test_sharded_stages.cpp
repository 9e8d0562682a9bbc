/// @file
/// States that are sharded over the data ranks of a stage: what they train is what `single` trains, exact inputs
/// compared with ==, real models within rounding; memory and bytes are the Program's and the formulas'. A rank holds
/// one stage, or several that are interleaved.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/staged_networks.hpp"
#include "partition/operator_splitting.hpp"
#include "partition/shards.hpp"
#include "partition/stages.hpp"

namespace strata::test_sharded_stages {
namespace {

/// How ranks are spread over nodes, and into how many stages.
struct Shape {
  int nodes = 1;
  int stages = 2;
};

class ShardedStages : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  int size() const { return world.size(); }

  /// Stages of a part of a node, of a node, and, where there are ranks enough, of several nodes.
  std::vector<Shape> shapes() const {
    if (size() == 4) return {{1, 2}, {2, 2}};
    return {{1, 2}, {2, 4}, {4, 2}};
  }
  Plan plan(const Training& training, const Shape& shape, std::vector<OperatorRule> rules) const {
    Plan plan = training.plan;
    plan.strategy = "3d+osdp";
    plan.mesh = {.nodes = shape.nodes,
                 .ranks_per_node = size() / shape.nodes,
                 .axes = {{"stage", shape.stages}, {"data", size() / shape.stages}}};
    plan.stages.count = shape.stages;
    plan.schedule.kind = ScheduleKind::one_forward_one_backward;
    plan.gathered_after_recompute = "regather";
    plan.operators = std::move(rules);
    return plan;
  }
  static Plan interleaved(Plan plan, int chunks) {
    plan.stages.count *= chunks;
    plan.schedule.kind = ScheduleKind::interleaved;
    return plan;
  }
  StateFactors all(const char* mode, const Shape& shape) const { return slice_factors(plan({}, shape, {}).mesh, mode); }

  /// All ways that are told apart: one for everything, mixed by operator, by slice, and over a part of the data ranks.
  std::vector<std::vector<OperatorRule>> ways(const Training& training, const Shape& shape) const {
    const StateFactors zdp = all("zdp", shape), sdp = all("sdp", shape);
    std::vector<std::vector<OperatorRule>> ways = {
        {{.match = "*", .state = zdp}},
        {{.match = "*", .state = sdp}},
        {{.match = "*", .state = StateFactors{.os = zdp.os}}},
        {{.match = "*", .state = zdp}, {.match = "block[1..2].*", .state = StateFactors{}}},
    };
    std::vector<OperatorRule> slices = {{.match = "*", .state = StateFactors{}}};
    for (const Operator& op : training.graph.operators) {
      if (op.kind != OperatorKind::linear || op.block < 0) continue;
      slices.push_back({.match = op.name, .slices = 3, .slice_state = {"zdp", "dp", "sdp"}});
    }
    ways.push_back(std::move(slices));
    if (zdp.p.in_node > 2) {
      const Factor part{2, 1};
      ways.push_back({{.match = "*", .state = StateFactors{.p = part, .g = part, .os = zdp.os}}});
      ways.push_back({{.match = "*", .state = StateFactors{.p = part, .g = part, .os = part}}});
    }
    return ways;
  }

  static void hide(Plan& plan, bool everything) {
    if (!everything) return;
    plan.overlap.gather = "next_layer";
    plan.overlap.gather_backward = "next_module";
    plan.overlap.reduce_scatter = "grad_input";
    plan.overlap.broadcast = "next_forward";
  }
  static std::string described(const Training& training, const Shape& shape, std::size_t way) {
    return fmt::format("{} on {} nodes in {} stages, way {}, {} micro-batches", training.graph.name, shape.nodes,
                       shape.stages, way, training.plan.schedule.micro_batches);
  }
};

TEST_F(ShardedStages, ExactInputsGiveEqualBits) {
  for (const auto& make : {exact_mlp, exact_tied, exact_skip}) {
    for (const int micro_batches : {1, 2, 4}) {
      const Training training = make(micro_batches, 5);
      const Trained reference = train(training, "single", 1, world, engine);
      for (const Shape& shape : shapes()) {
        const auto all_ways = ways(training, shape);
        for (std::size_t w = 0; w < all_ways.size(); ++w) {
          for (const bool again : {false, true}) {
            Plan sharded = plan(training, shape, all_ways[w]);
            sharded.recompute = again ? Recompute::block : Recompute::none;
            sharded.optimizer.gradients = again ? "reduce_scatter" : "all_reduce";
            hide(sharded, again != (w % 2 == 0));
            const Trained ours = train_plan(training, sharded, world, engine);
            for (const auto& [name, values] : ours.parameters) {
              EXPECT_EQ(values, reference.parameters.at(name)) << name << ", " << described(training, shape, w);
            }
            EXPECT_EQ(ours.losses, reference.losses) << described(training, shape, w);
          }
        }
      }
    }
  }
}

/// Two stages a rank, and three where that leaves each a block: states of all of them are cut over the same data ranks.
TEST_F(ShardedStages, InterleavedStagesGiveEqualBits) {
  for (const auto& make : {exact_mlp, exact_tied, exact_skip}) {
    for (const int rounds : {1, 2}) {
      for (const Shape& shape : shapes()) {
        const Training training = make(rounds * shape.stages, shape.stages == 4 ? 8 : 6);
        const Trained reference = train(training, "single", 1, world, engine);
        const auto all_ways = ways(training, shape);
        for (std::size_t w = 0; w < all_ways.size(); ++w) {
          const int chunks = shape.stages == 4 || (w + static_cast<std::size_t>(rounds)) % 2 == 0 ? 2 : 3;
          Plan sharded = interleaved(plan(training, shape, all_ways[w]), chunks);
          sharded.recompute = chunks == 2 ? Recompute::block : Recompute::none;
          sharded.optimizer.gradients = rounds == 2 ? "reduce_scatter" : "all_reduce";
          hide(sharded, w % 2 == 0);
          const Trained ours = train_plan(training, sharded, world, engine);
          for (const auto& [name, values] : ours.parameters) {
            EXPECT_EQ(values, reference.parameters.at(name)) << name << ", " << described(training, shape, w);
          }
          EXPECT_EQ(ours.losses, reference.losses) << described(training, shape, w);
        }
      }
    }
  }
}

TEST_F(ShardedStages, RealModelsWithDropoutClippingAndRecomputation) {
  for (const RealModel& model : staged_models()) {
    const std::string_view name = model.name;
    if (name != "gpt" && name != "llama") continue;
    Training training = with(build_model(model.options), 24, 3);
    training.steps = 3;
    training.learning_rate = 0.01;
    training.plan.optimizer.momentum = 0.5;
    training.plan.optimizer.weight_decay = 0.01;
    training.plan.optimizer.clip_norm = 0.5;
    const Trained reference = train(training, "single", 1, world, engine);
    for (const Shape& shape : shapes()) {
      const auto all_ways = ways(training, shape);
      for (std::size_t w = 0; w < all_ways.size(); ++w) {
        Plan sharded = plan(training, shape, all_ways[w]);
        sharded.recompute = w % 2 == 0 ? Recompute::block : Recompute::none;
        hide(sharded, w > 0);
        expect_same(train_plan(training, sharded, world, engine), reference, described(training, shape, w));
      }
    }
  }
}

/// A tied table and its gradients are the same on both ends, whatever the optimizer makes of them.
TEST_F(ShardedStages, CopiesOfATiedTableStayEqualUnderAdam) {
  Training training = with(build_model(staged_models().front().options), 24, 3);
  training.steps = 5;
  training.learning_rate = 1e-2;
  training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1, .clip_norm = 0.5};
  for (const Shape& shape : shapes()) {
    for (const char* mode : {"zdp", "sdp", "dp"}) {
      const Plan sharded = plan(training, shape, {{.match = "*", .state = all(mode, shape)}});
      const Trained ours = train_plan(training, sharded, world, engine);
      const auto mine = ours.parameters.find("embedding.table");
      const bool is_here = mine != ours.parameters.end();
      std::vector<std::string> held = world.all_gather(
          is_here ? std::string(reinterpret_cast<const char*>(mine->second.data()), mine->second.size() * sizeof(float))
                  : std::string());
      std::erase(held, "");
      EXPECT_EQ(std::ssize(held), 2 * size() / shape.stages) << mode;
      EXPECT_EQ(std::ranges::count(held, held.front()), std::ssize(held)) << mode << " in " << shape.stages;
    }
  }
}

/// Nine blocks: uneven in four stages and in eight. The first rank of a pipeline and its last share a tied table.
TEST_F(ShardedStages, InterleavedRealModelsMoveTheProgrammedBytes) {
  ModelOptions options = staged_models().front().options;
  options.layers = 9;
  Training training = with(build_model(options), 32, 4);
  training.steps = 2;
  training.learning_rate = 0.01;
  training.plan.optimizer.momentum = 0.5;
  training.plan.optimizer.clip_norm = 0.5;
  const Trained reference = train(training, "single", 1, world, engine);
  for (const Shape& shape : shapes()) {
    const auto all_ways = ways(training, shape);
    for (std::size_t w = 0; w < all_ways.size(); ++w) {
      Plan sharded = interleaved(plan(training, shape, all_ways[w]), 2);
      sharded.recompute = w % 2 == 0 ? Recompute::block : Recompute::none;
      hide(sharded, w > 0);
      const Trained ours = train_plan(training, sharded, world, engine);
      expect_same(ours, reference, described(training, shape, w));
      const BytesByCollective predicted = bytes_by_collective(ours.program);
      for (int kind = 0; kind < num_collectives; ++kind) {
        EXPECT_EQ(ours.last_step.bytes_sent[static_cast<std::size_t>(kind)], predicted.bytes[kind])
            << to_string(static_cast<Collective>(kind)) << ", " << described(training, shape, w);
      }
    }
  }
}

/// Every tensor divides by the ranks of a stage, so that nothing is rounded up.
TEST_F(ShardedStages, BytesAndStatesAreTheFormulas) {
  constexpr std::int64_t c = 2, g = 2, k = 12;  // bytes of a parameter, a gradient, an element's optimizer states
  for (const Shape& shape : shapes()) {
    for (const int micro_batches : {1, 3}) {
      Training training =
          with(build_model({.name = "mlp", .widths = {128, 256, 128, 384, 256, 128}}), 48, micro_batches);
      training.plan.dtypes = {DType::bf16, DType::bf16};
      training.plan.optimizer = {.kind = "adamw"};
      training.classes = 128;
      training.learning_rate = 1e-3;
      training.steps = 2;
      const Plan sharded = plan(training, shape, {{.match = "*", .state = all("zdp", shape)}});
      const Trained trained = train_plan(training, sharded, world, engine);

      const std::int64_t data = size() / shape.stages;
      const int stage = coordinate(sharded.mesh, "stage", world.rank());
      const std::vector<Stage> stages = cut_into_stages(training.graph, sharded.stages);
      std::int64_t elements = 0, read_again = 0;
      for (const Operator& op : operators_of(training.graph, stages[static_cast<std::size_t>(stage)])) {
        for (std::size_t i = 0; i < op.parameters.size(); ++i) {
          const std::int64_t n = training.graph.parameters[static_cast<std::size_t>(op.parameters[i])].num_elements();
          elements += n;
          if (i == 0 && !op.name.starts_with("block[0]")) read_again += n;
        }
      }
      const auto sent = [&](Collective kind) { return trained.last_step.bytes_sent[static_cast<std::size_t>(kind)]; };
      const std::string what = described(training, shape, 0);
      EXPECT_EQ(sent(Collective::all_gather), (data - 1) * micro_batches * c * (elements + read_again) / data) << what;
      EXPECT_EQ(sent(Collective::reduce_scatter), (data - 1) * micro_batches * g * elements / data) << what;
      EXPECT_EQ(sent(Collective::all_reduce), 0) << what;

      std::int64_t parameters = 0, optimizer = 0;
      for (const Buffer& buffer : trained.program.buffers) {
        if (!buffer.persistent) continue;
        parameters += buffer.category == Category::parameter ? buffer.size_bytes() : 0;
        optimizer += buffer.category == Category::optimizer ? buffer.size_bytes() : 0;
      }
      EXPECT_EQ(parameters, c * elements / data) << what;
      EXPECT_EQ(optimizer, k * elements / data) << what;
    }
  }
}

TEST_F(ShardedStages, MemoryAndBytesAreTheProgrammedOnes) {
  Training training = with(build_model(staged_models().front().options), 24, 3);
  training.steps = 2;
  for (const Shape& shape : shapes()) {
    for (const auto& rules : ways(training, shape)) {
      Plan sharded = plan(training, shape, rules);
      hide(sharded, true);
      const Trained trained = train_plan(training, sharded, world, engine);
      const BytesByCollective predicted = bytes_by_collective(trained.program);
      for (int kind = 0; kind < num_collectives; ++kind) {
        EXPECT_EQ(trained.last_step.bytes_sent[static_cast<std::size_t>(kind)], predicted.bytes[kind])
            << to_string(static_cast<Collective>(kind));
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_sharded_stages
