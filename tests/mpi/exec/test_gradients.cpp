/// @file
/// The gradient of a whole step, tensor by tensor, is the slope of its loss: central differences through the Program.
/// Modes that share a lowering agree with each other even where it is wrong; this asks the loss itself.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/graph_builder.hpp"
#include "mpi/exec/training.hpp"

namespace strata::test_gradients {
namespace {

struct Case {
  const char* name;
  ModelGraph graph;
  double classes;  ///< of the initial loss, which is near its logarithm; 0: not near
  /// Of the loss, asked for by the step. A ReLU or a maximum that flips bends the line: halving the step halves that
  /// error, down to the rounding of the loss.
  double change;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class Gradients : public testing::TestWithParam<Case> {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
};

TEST_P(Gradients, AreTheSlopeOfTheLoss) {
  Training training{.graph = GetParam().graph, .plan = {}};
  training.plan.global_batch = 12;
  training.plan.schedule.micro_batches = 2;
  training.plan.optimizer = {.kind = "sgd", .momentum = 0.0};
  training.vocabulary = 101;
  training.learning_rate = 4096.0;  // outweighs the weight, so that the difference is the gradient to full precision
  const Trained step = train(training, "single", 1, world, engine);
  if (GetParam().classes > 0.0) {
    EXPECT_NEAR(step.losses[0], std::log(GetParam().classes), 0.1 * std::log(GetParam().classes));
  }
  int compared = 0;
  for (const auto& [name, after] : step.parameters) {
    std::vector<float> gradient(after.size());
    for (std::size_t i = 0; i < after.size(); ++i) gradient[i] = (step.initial.at(name)[i] - after[i]) / 4096.0F;
    const double length = norm(gradient);
    ASSERT_GT(length, 0.0) << name;
    // Far enough for the loss to change by much more than its rounding, near enough to be straight.
    const double distance = std::min(GetParam().change / length, 0.2);
    const auto loss_at = [&](double sign) {
      Training moved = training;
      moved.learning_rate = 0.0;
      moved.initial = [&](const std::string& parameter, std::span<float> values) {
        if (parameter != name) return;
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] += static_cast<float>(sign * distance * static_cast<double>(gradient[i]) / length);
        }
      };
      return static_cast<double>(train(moved, "single", 1, world, engine).losses[0]);
    };
    const double slope = (loss_at(1.0) - loss_at(-1.0)) / (2.0 * distance);
    const double rounding = 1e-6 / distance;
    EXPECT_NEAR(slope, length, 0.02 * length + rounding) << name;
    compared += rounding < 0.1 * length ? 1 : 0;
  }
  EXPECT_GE(compared, std::ssize(step.parameters) - 1) << "slopes above the rounding of the loss";
}

/// Values that are used again and again, by sums, by products and by kernels that cannot add to a gradient: no model
/// here does so, yet a plan may be asked for one that does.
ModelGraph reused_values() {
  const auto normal = [](double deviation) { return Initializer{Initializer::Kind::normal, 0.0, deviation}; };
  GraphBuilder graph("reused");
  const int image = graph.input("image", {20}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  const auto linear = [&](const char* name, int x, std::int64_t in, std::int64_t out) {
    return graph.linear(name, x, {.in = in, .out = out, .weight = normal(0.4)});
  };
  const int a = linear("a", image, 20, 16);
  const int b = graph.gelu("b", a);
  const int c = graph.add("c", a, b);
  const int d = graph.add("d", c, a);
  const int e = graph.add("e", linear("e.linear", c, 16, 16), d);
  const int f = graph.gelu("f", c);
  const int g = graph.add("g", graph.add("g.inner", e, f), c);
  graph.cross_entropy("loss", linear("head", graph.add("h", g, b), 16, 10), label);
  return graph.finish(1);
}

/// Attention and a linear side by side, and their sum with what both read. Attention's backward reads its own output,
/// so that no addition may take its place; and the linear's backward adds to a gradient that attention's has yet to
/// read.
ModelGraph parallel_branches() {
  constexpr std::int64_t sequence = 9, hidden = 16, vocabulary = 101;
  const Initializer normal{Initializer::Kind::normal, 0.0, 0.4};
  GraphBuilder graph("parallel");
  const int tokens = graph.input("tokens", {sequence}, TensorRole::tokens);
  const int targets = graph.input("targets", {sequence}, TensorRole::targets);
  const auto linear = [&](const char* name, int x, std::int64_t out) {
    return graph.linear(name, x, {.in = hidden, .out = out, .weight = normal});
  };
  const int x = graph.embedding("embedding", tokens, vocabulary, hidden, sequence, normal);
  const int y = graph.causal_attention("attention", linear("qkv", x, 3 * hidden), {2, 2, hidden / 2}, 0.0);
  const int z = linear("beside", x, hidden);
  const int sum = graph.add("sum", graph.add("inner", x, y), z);
  graph.cross_entropy("loss", linear("head", sum, vocabulary), targets);
  return graph.finish(sequence);
}

/// Logits that the backward of what makes them reads: of a ReLU its output, of attention too.
ModelGraph read_logits(bool by_attention) {
  constexpr std::int64_t sequence = 9, hidden = 16, vocabulary = 101;
  const Initializer normal{Initializer::Kind::normal, 0.0, 0.4};
  GraphBuilder graph(by_attention ? "attention_logits" : "relu_logits");
  const int tokens = graph.input("tokens", {sequence}, TensorRole::tokens);
  const int targets = graph.input("targets", {sequence}, TensorRole::targets);
  const int x = graph.embedding("embedding", tokens, vocabulary, hidden, sequence, normal);
  const auto linear = [&](const char* name, std::int64_t out) {
    return graph.linear(name, x, {.in = hidden, .out = out, .weight = normal});
  };
  constexpr std::int64_t padded = 104;  // of eight heads
  const int logits = by_attention
                         ? graph.causal_attention("attention", linear("qkv", 3 * padded), {8, 8, padded / 8}, 0.0)
                         : graph.relu("relu", linear("head", vocabulary));
  graph.cross_entropy("loss", logits, targets);
  return graph.finish(sequence);
}

/// The loss's kernel leaves its gradient where the logits were: a copy of them, where somebody still reads these.
TEST(ReadLogits, AreCopiedForTheGradient) {
  Plan plan;
  plan.strategy = "single";
  plan.mesh.axes = {{"data", 1}};
  plan.global_batch = 2;
  const Program program = lower(plan, read_logits(false), 0, cpu::workspaces_of({}));
  const auto loss = std::ranges::find(program.body, Kernel::cross_entropy, &Instruction::kernel);
  const auto relu = std::ranges::find(program.body, Kernel::relu_backward, &Instruction::kernel);
  ASSERT_NE(relu, program.body.end());
  ASSERT_NE(loss, program.body.end());
  EXPECT_EQ(relu->inputs.front(), loss->outputs.back()) << "the gradient";
  EXPECT_NE(relu->inputs.back().buffer, loss->outputs.back().buffer) << "the output of relu";
}

TEST(ReusedValues, NeedGradientsThatAreAddedAndCopied) {
  Plan plan;
  plan.strategy = "single";
  plan.mesh.axes = {{"data", 1}};
  plan.global_batch = 2;
  const Program program = lower(plan, reused_values(), 0, cpu::workspaces_of({}));
  int added = 0;
  int copied = 0;
  for (const Instruction& in : program.body) {
    added += in.kernel == Kernel::accumulate ? 1 : 0;
    copied += in.kernel == Kernel::copy ? 1 : 0;
  }
  EXPECT_GT(added, 0);
  EXPECT_GT(copied, 0);
}

INSTANTIATE_TEST_SUITE_P(
    , Gradients,
    testing::Values(Case{"gpt", build_model({.name = "gpt-nano", .vocabulary = 101, .sequence_length = 33}), 101, 4e-3},
                    Case{"llama", build_model({.name = "llama-nano", .vocabulary = 101, .sequence_length = 17}), 101,
                         4e-3},
                    Case{"vgg", build_model({.name = "vgg-nano"}), 0, 6e-5},
                    Case{"resnet", build_model({.name = "resnet-nano"}), 0, 6e-5},
                    Case{"vit", build_model({.name = "vit-nano"}), 10, 1e-3},
                    Case{"mlp", build_model({.name = "mlp-tiny"}), 0, 1e-3}, Case{"reused", reused_values(), 0, 4e-3},
                    Case{"parallel", parallel_branches(), 0, 4e-3}, Case{"relu_logits", read_logits(false), 0, 1e-3},
                    Case{"attention_logits", read_logits(true), 0, 4e-3}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace strata::test_gradients
