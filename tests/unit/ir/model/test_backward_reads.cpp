/// @file
/// Which tensors have gradients and which weights backward reads: an MLP's first layer has no gradient to pass on, an
/// embedding's table is never read.

#include <gmock/gmock.h>

#include "ir/model/backward_reads.hpp"
#include "models/model.hpp"

namespace strata::test_backward_reads {
namespace {

std::vector<std::string> names_read(const ModelGraph& graph) {
  const std::vector<bool> has_gradient = tensors_with_gradient(graph);
  std::vector<std::string> names;
  for (const Operator& op : graph.operators) {
    for (const int p : weights_read_by_backward(op, has_gradient[static_cast<std::size_t>(op.inputs.front())])) {
      names.push_back(graph.parameters[static_cast<std::size_t>(p)].name);
    }
  }
  return names;
}

TEST(BackwardReads, NoBiasAndNotTheFirstLayerOfAnMlp) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {8, 8, 8, 8}});
  EXPECT_THAT(names_read(graph), testing::ElementsAre("block[1].linear.weight", "head.weight"));
}

TEST(BackwardReads, NormsAndProductsOfATransformer) {
  const ModelGraph graph = build_model({.name = "llama-nano"});
  const std::vector<std::string> names = names_read(graph);
  EXPECT_EQ(names.size() + 1, graph.parameters.size()) << "all but the table of the embedding";
  EXPECT_THAT(names, testing::Each(testing::Not(testing::HasSubstr("embedding"))));
}

TEST(BackwardReads, InputsStatisticsAndLossesHaveNoGradient) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const std::vector<bool> has = tensors_with_gradient(graph);
  for (std::size_t t = 0; t < has.size(); ++t) {
    EXPECT_EQ(has[t], graph.tensors[t].role == TensorRole::activation) << graph.tensors[t].name;
  }
}

}  // namespace
}  // namespace strata::test_backward_reads
