/// @file
/// The model as evaluation has it, and its Program: forward alone, of every parameter of the training and no more.

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "ir/program/training_state.hpp"
#include "lower/evaluation.hpp"
#include "models/model.hpp"
#include "support/no_workspace.hpp"

namespace strata::test_evaluation {
namespace {

bool has(const ModelGraph& graph, OperatorKind kind) {
  return std::ranges::find(graph.operators, kind, &Operator::kind) != graph.operators.end();
}

TEST(EvaluationGraph, NothingOfTrainingIsLeft) {
  for (const char* name : {"gpt-nano", "llama-nano", "resnet-nano", "vit-nano", "vgg-nano"}) {
    ModelOptions config{.name = name};
    if (std::string_view(name) == "gpt-nano") config.dropout = 0.1;
    const ModelGraph training = build_model(config);
    const ModelGraph graph = evaluation_graph(training);  // verified
    for (const OperatorKind kind : {OperatorKind::dropout, OperatorKind::batch_norm, OperatorKind::cross_entropy}) {
      EXPECT_FALSE(has(graph, kind)) << name << " " << to_string(kind);
    }
    EXPECT_EQ(graph.operators.back().kind, OperatorKind::top_k) << name;
    for (const Operator& op : graph.operators) {
      EXPECT_EQ(op.attributes.real_or("dropout", 0.0), 0.0) << name << " " << op.name;
    }
    ASSERT_GE(graph.parameters.size(), training.parameters.size()) << name;
    for (std::size_t p = 0; p < training.parameters.size(); ++p) {
      EXPECT_EQ(graph.parameters[p], training.parameters[p]) << name;
    }
    const auto norms = std::ranges::count(training.operators, OperatorKind::batch_norm, &Operator::kind);
    EXPECT_EQ(std::ssize(graph.parameters) - std::ssize(training.parameters), 2 * norms) << name;
    EXPECT_EQ(graph.blocks.size(), training.blocks.size()) << name;
  }
}

TEST(EvaluationProgram, IsForwardAloneAndHoldsEachParameterOnceOverTheRanks) {
  const ModelGraph graph = evaluation_graph(build_model({.name = "resnet-nano"}));
  Plan training;
  training.mesh = {.nodes = 1, .ranks_per_node = 3, .axes = {{"stage", 3}}};
  for (const std::int64_t samples : {2, 7}) {
    const Plan plan = evaluation_plan(training, samples);
    std::int64_t held = 0, loaded = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const Program program = lower_evaluation(plan, graph, rank, no_workspace);
      ASSERT_GE(program.loss_buffer, 0);
      ASSERT_GE(program.correct_buffer, 0);
      for (const Instruction& in : program.body) {
        EXPECT_TRUE(in.phase == Phase::forward || in.phase == Phase::metrics) << in.name;
        if (in.kernel == Kernel::load_images) loaded += in.attributes.integer("samples");
      }
      for (const HeldWeight& weight : held_weights(program)) {
        held += program.buffers[static_cast<std::size_t>(weight.buffer)].num_elements;
      }
      for (const Buffer& buffer : program.buffers) EXPECT_NE(buffer.category, Category::optimizer) << buffer.name;
    }
    EXPECT_EQ(held, graph.num_parameters());
    EXPECT_EQ(loaded, samples);
  }
}

}  // namespace
}  // namespace strata::test_evaluation
