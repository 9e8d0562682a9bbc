/// @file
/// Where a model is cut, and what crosses the cuts.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "models/model.hpp"
#include "partition/stages.hpp"

namespace strata {
namespace {

ModelGraph mlp(std::vector<std::int64_t> widths) { return build_model({.name = "mlp", .widths = std::move(widths)}); }

double cost(const ModelGraph& graph, const Stage& stage, const std::string& cut_by) {
  double sum = 0.0;
  for (const Operator& op : operators_of(graph, stage)) {
    if (cut_by == "operators") sum += 1.0;
    if (cut_by == "flops") sum += forward_flops(graph, op, 1);
    if (cut_by != "parameters") continue;
    for (const int p : op.parameters) {
      sum += static_cast<double>(graph.parameters[static_cast<std::size_t>(p)].num_elements());
    }
  }
  return sum;
}

double largest_cost(const ModelGraph& graph, const std::vector<Stage>& stages, const std::string& cut_by) {
  double largest = 0.0;
  for (const Stage& stage : stages) largest = std::max(largest, cost(graph, stage, cut_by));
  return largest;
}

/// The least largest cost of all ways to cut `graph` into `count` stages at blocks, by trying them all.
double least_largest(const ModelGraph& graph, int count, const std::string& cut_by) {
  const int blocks = static_cast<int>(graph.blocks.size());
  std::vector<bool> begins(static_cast<std::size_t>(blocks - 1), false);
  std::fill(begins.begin(), begins.begin() + count - 1, true);
  double least = std::numeric_limits<double>::infinity();
  do {
    std::vector<Stage> stages = {{0, 0}};
    for (int b = 1; b < blocks; ++b) {
      if (!begins[static_cast<std::size_t>(b - 1)]) continue;
      const int first = graph.blocks[static_cast<std::size_t>(b)].first_operator;
      stages.back().num_operators = first - stages.back().first_operator;
      stages.push_back({first, 0});
    }
    stages.back().num_operators = static_cast<int>(graph.operators.size()) - stages.back().first_operator;
    least = std::min(least, largest_cost(graph, stages, cut_by));
  } while (std::prev_permutation(begins.begin(), begins.end()));
  return least;
}

std::vector<ModelGraph> models() {
  return {build_model({.name = "gpt-nano", .layers = 7}), build_model({.name = "llama-nano", .layers = 5}),
          build_model({.name = "vgg-nano"}), mlp({3, 50, 4, 40, 5, 30, 6, 2}),
          // Four stages by parameters: the least sum of squares has a largest one of 109, the least largest is 103.
          mlp({2, 7, 11, 4, 11, 4, 4})};
}

TEST(Stages, TheLargestIsAsSmallAsItCanBeAndTheyTileTheModelAtBlocks) {
  for (const ModelGraph& graph : models()) {
    for (const char* cut_by : {"flops", "operators", "parameters"}) {
      for (int count = 1; count <= static_cast<int>(graph.blocks.size()); ++count) {
        const std::vector<Stage> stages = cut_into_stages(graph, {count, cut_by});
        ASSERT_EQ(std::ssize(stages), count);
        int next = 0;
        for (const Stage& stage : stages) {
          EXPECT_EQ(stage.first_operator, next);
          next = stage.end();
          const bool at_block = stage.first_operator == 0 || std::ranges::any_of(graph.blocks, [&](const Block& block) {
                                  return block.first_operator == stage.first_operator;
                                });
          EXPECT_TRUE(at_block) << graph.name;
        }
        EXPECT_EQ(next, std::ssize(graph.operators));
        EXPECT_EQ(largest_cost(graph, stages, cut_by), least_largest(graph, count, cut_by))
            << graph.name << " in " << count << " by " << cut_by;
      }
    }
  }
}

std::vector<int> blocks_a_stage(const ModelGraph& graph, const std::vector<Stage>& stages) {
  std::vector<int> counts;
  for (const Stage& stage : stages) {
    counts.push_back(static_cast<int>(std::ranges::count_if(graph.blocks, [&](const Block& block) {
      return block.first_operator >= stage.first_operator && block.first_operator < stage.end();
    })));
  }
  return counts;
}

TEST(Stages, EmbeddingAndHeadWeighWhatTheyCost) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 7, .vocabulary = 4096});
  // 64 wide: the head of 4096 words is worth five of the blocks.
  EXPECT_EQ(blocks_a_stage(graph, cut_into_stages(graph, {2, "flops"})), (std::vector{6, 1}));
  EXPECT_EQ(blocks_a_stage(graph, cut_into_stages(graph, {2, "parameters"})), (std::vector{3, 4}));
  EXPECT_EQ(blocks_a_stage(graph, cut_into_stages(graph, {3, "operators"})), (std::vector{2, 3, 2}));
  const std::vector<Stage> stages = cut_into_stages(graph, {3, "flops"});
  EXPECT_EQ(operators_of(graph, stages.front()).front().name, "embedding");
  EXPECT_EQ(operators_of(graph, stages.back()).back().name, "loss");
}

TEST(Stages, EqualBlocksAreDealtEvenly) {
  // Eight equal blocks in three stages: none may have two or fewer while another has four.
  const ModelGraph graph = mlp({16, 16, 16, 16, 16, 16, 16, 16, 16, 2});
  EXPECT_EQ(blocks_a_stage(graph, cut_into_stages(graph, {3, "flops"})), (std::vector{3, 3, 2}));
  EXPECT_EQ(blocks_a_stage(graph, cut_into_stages(graph, {5, "flops"})), (std::vector{1, 2, 2, 2, 1}));
}

TEST(Stages, MoreStagesThanBlocksAreRefusedWithNumbers) {
  try {
    cut_into_stages(build_model({.name = "gpt-nano"}), {3, "flops"});
    FAIL() << "must be refused";
  } catch (const Unsupported& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("3 stages"), std::string::npos) << message;
    EXPECT_NE(message.find("2 blocks"), std::string::npos) << message;
  }
}

TEST(Stages, OneTensorCrossesBetweenBlocksOfEveryModel) {
  for (const ModelGraph& graph : models()) {
    for (const Block& block : graph.blocks) {
      if (block.first_operator == 0) continue;
      const std::vector<int> across = tensors_across(graph, block.first_operator);
      ASSERT_EQ(across.size(), 1U) << graph.name;
      EXPECT_EQ(across[0], graph.operators[static_cast<std::size_t>(block.first_operator) - 1].outputs[0]);
    }
    EXPECT_TRUE(tensors_across(graph, 0).empty()) << "inputs are loaded where they are read";
  }
}

TEST(Stages, InTheMiddleOfABlockTheResidualCrossesToo) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const auto at = std::ranges::find(graph.operators, "block[0].attn.core", &Operator::name);
  const std::vector<int> across = tensors_across(graph, static_cast<int>(at - graph.operators.begin()));
  std::vector<std::string> names;
  for (const int t : across) names.push_back(graph.tensors[static_cast<std::size_t>(t)].name);
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "block[0].attn.qkv"}));
}

TEST(Stages, ATiedTableIsHeldByItsTwoStages) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 4});
  const std::vector<Stage> stages = cut_into_stages(graph, {4, "operators"});
  const auto users = stages_of_parameters(graph, stages);
  for (std::size_t p = 0; p < users.size(); ++p) {
    const std::string& name = graph.parameters[p].name;
    EXPECT_EQ(users[p].size(), name == "embedding.table" ? 2U : 1U) << name;
    if (name == "embedding.table") {
      EXPECT_EQ(users[p], (std::vector{0, 3}));
    }
  }
}

TEST(Stages, TheGraphOfAStageHasItsOperatorsAndAllNumbers) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 4});
  std::size_t operators = 0, blocks = 0;
  for (const Stage& stage : cut_into_stages(graph, {3, "flops"})) {
    const ModelGraph part = graph_of(graph, stage);
    ASSERT_EQ(std::ssize(part.operators), stage.num_operators);
    for (std::size_t o = 0; o < part.operators.size(); ++o, ++operators) {
      EXPECT_EQ(part.operators[o], graph.operators[operators]);
    }
    EXPECT_EQ(part.parameters, graph.parameters);
    ASSERT_EQ(part.blocks.size(), graph.blocks.size());
    for (std::size_t b = 0; b < part.blocks.size(); ++b) {
      const Block& block = part.blocks[b];
      if (block.num_operators == 0) continue;
      ++blocks;
      EXPECT_EQ(block.num_operators, graph.blocks[b].num_operators);
      for (int o = block.first_operator; o < block.first_operator + block.num_operators; ++o) {
        EXPECT_EQ(part.operators[static_cast<std::size_t>(o)].block, static_cast<int>(b));
      }
    }
  }
  EXPECT_EQ(operators, graph.operators.size());
  EXPECT_EQ(blocks, graph.blocks.size());
}

}  // namespace
}  // namespace strata
