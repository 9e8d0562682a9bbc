/// @file
/// overlap.update = backward trains what updates behind the last backward train, in every mode that communicates: exact
/// inputs compared with ==, real models within rounding and in less memory.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/staged_networks.hpp"

namespace strata::test_update_in_backward {
namespace {

struct Way {
  std::string mode;
  std::map<std::string, OptionValue> options{};
};

std::string text(const Way& way) {
  std::string text = way.mode;
  for (const auto& [key, value] : way.options) {
    if (const auto* word = std::get_if<std::string>(&value)) text += fmt::format(", {} = {}", key, *word);
  }
  return text;
}

class UpdateInBackward : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  int size() const { return world.size(); }

  std::vector<Way> ways() const {
    const auto word = [](const char* text) { return OptionValue{std::string(text)}; };
    std::vector<Way> ways = {{"single"}, {"ddp"}, {"zero1"}, {"zero2"}, {"zero3"}, {"mics"}, {"zeropp"}};
    ways.push_back({"zero3", {{"overlap", word("none")}}});
    ways.push_back({"zero2", {{"overlap", word("deepspeed")}}});
    ways.push_back({"zero3", {{"slices", std::int64_t{2}}}});
    ways.push_back({"zeropp", {{"quantized_weights", word("int8")}, {"quantized_gradients", word("int8")}}});
    const std::string all = fmt::format("{}x1", size());
    for (const std::string& g : {std::string("1x1"), all}) {
      for (const char* sharding : {"inter_tensor", "intra_tensor"}) {
        for (const char* broadcast : {"none", "next_forward"}) {
          ways.push_back({"amsp",
                          {{"p", word("1x1")},
                           {"g", g},
                           {"os", all},
                           {"sharding", word(sharding)},
                           {"broadcast", word(broadcast)}}});
        }
      }
      ways.push_back({"amsp",
                      {{"p", word("1x1")},
                       {"g", g},
                       {"os", all},
                       {"sharding", word("intra_tensor")},
                       {"gradients", word("reduce_scatter")}}});
    }
    for (const char* mode : {"gpipe", "1f1b"}) ways.push_back({mode, {{"stages", std::int64_t{2}}}});
    for (const char* mode : {"megatron", "summa", "autoddl"}) ways.push_back({mode, {{"cost", word("volume")}}});
    ways.push_back({"megatron", {{"cost", word("volume")}, {"zero", word("zero1")}}});
    return ways;
  }

  Plan planned(Training& training, const Way& way) const {
    training.options = way.options;
    return plan_of(training, way.mode, way.mode == "single" ? 1 : size());
  }
};

TEST_F(UpdateInBackward, ExactInputsGiveEqualBits) {
  for (const Way& way : ways()) {
    for (const auto& make : {exact_mlp, exact_tied, exact_skip}) {
      for (const int micro_batches : {1, 2}) {
        Training training = make(micro_batches, 5);
        Plan plan;
        try {
          plan = planned(training, way);
        } catch (const Unsupported&) {
          continue;  // fewer features than ranks of a layout
        }
        const Trained behind = train_plan(training, plan, world, engine);
        plan.overlap.update = "backward";
        const Trained inside = train_plan(training, plan, world, engine);
        const std::string what =
            fmt::format("{} of {}, {} micro-batches", text(way), training.graph.name, micro_batches);
        for (const auto& [parameter, values] : inside.parameters) {
          EXPECT_EQ(values, behind.parameters.at(parameter)) << parameter << ", " << what;
        }
        EXPECT_EQ(inside.losses, behind.losses) << what;
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(UpdateInBackward, RealModelsAreTheSameWithinRounding) {
  for (const char* mode : {"ddp", "zero2", "zero3", "1f1b"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      Training training =
          with(build_model({.name = "gpt-nano", .layers = 4, .dropout = 0.1, .tied_head = true}), 24, 2);
      training.vocabulary = 256;
      training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.01};
      training.plan.recompute = recompute;
      training.learning_rate = 0.001;
      training.steps = 3;
      Plan plan = plan_of(training, mode, size());
      const Trained behind = train_plan(training, plan, world, engine);
      plan.overlap.update = "backward";
      expect_same(train_plan(training, plan, world, engine), behind,
                  fmt::format("{}, recompute {}", mode, to_string(recompute)));
    }
  }
}

/// Six equal blocks whose gradients outweigh their activations: at most those of two blocks, and of what is tied, are
/// there at a time.
TEST_F(UpdateInBackward, GradientsThatNeedNotWaitNeedNoMemory) {
  const ModelGraph graph = build_model({.name = "gpt",
                                        .layers = 6,
                                        .hidden = 64,
                                        .heads = 4,
                                        .vocabulary = 16,
                                        .sequence_length = 4,
                                        .tied_head = true});
  Training training = with(graph, size(), 1);
  training.vocabulary = 16;
  std::int64_t block_bytes = 0;
  for (const Parameter& parameter : graph.parameters) {
    if (parameter.name.starts_with("block[0]")) block_bytes += 4 * parameter.num_elements();
  }
  Plan plan = plan_of(training, "ddp", size());
  const Trained behind = train_plan(training, plan, world, engine);
  plan.overlap.update = "backward";
  const Trained inside = train_plan(training, plan, world, engine);
  expect_same(inside, behind, "one micro-batch");
  const std::int64_t less = behind.program.arena_bytes - inside.program.arena_bytes;
  EXPECT_GE(less, 3 * block_bytes) << "of six";
  EXPECT_LE(less, 4 * block_bytes) << "of six";
  RecordProperty("less_bytes", std::to_string(less));
}

}  // namespace
}  // namespace strata::test_update_in_backward
