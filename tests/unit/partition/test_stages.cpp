/// @file
/// Where a model is cut, and what crosses the cuts.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "ir/model/backward_reads.hpp"
#include "models/graph_builder.hpp"
#include "models/model.hpp"
#include "partition/stages.hpp"
#include "support/refusal.hpp"

namespace strata::test_stages {
namespace {

ModelGraph mlp(std::vector<std::int64_t> widths) { return build_model({.name = "mlp", .widths = std::move(widths)}); }

double cost(const ModelGraph& graph, const Stage& stage, const std::string& cut_by) {
  double sum = 0.0;
  for (const Operator& op : operators_of(graph, stage)) {
    if (cut_by == "operators") sum += 1.0;
    if (cut_by.starts_with("flops")) sum += forward_flops(graph, op, 1);
    const bool has_bias = op.kind == OperatorKind::linear && op.parameters.size() == 2;
    if (cut_by == "flops_paper" && has_bias) sum += std::sqrt(forward_flops(graph, op, 1));
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
          build_model({.name = "vgg-nano"}), build_model({.name = "vit-nano", .layers = 5}),
          mlp({3, 50, 4, 40, 5, 30, 6, 2}),
          // Four stages by parameters: the least sum of squares has a largest one of 109, the least largest is 103.
          mlp({2, 7, 11, 4, 11, 4, 4})};
}

TEST(Stages, TheLargestIsAsSmallAsItCanBeAndTheyTileTheModelAtBlocks) {
  for (const ModelGraph& graph : models()) {
    for (const char* cut_by : {"flops", "flops_paper", "operators", "parameters"}) {
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

// ---- cut at any operator ------------------------------------------------------------------------------------------

/// Of what crosses a cut before operator @p o something has a gradient that goes back.
bool carries_gradients(const ModelGraph& graph, int o) {
  const std::vector<bool> has_gradient = tensors_with_gradient(graph);
  return std::ranges::any_of(tensors_across(graph, o),
                             [&](int t) { return has_gradient[static_cast<std::size_t>(t)]; });
}

TEST(Stages, MayBeginWithEveryOperatorThatGradientsGoBackFrom) {
  for (const ModelGraph& graph : models()) {
    const std::vector<int> points = cut_points(graph, "operator");
    EXPECT_EQ(points.front(), 0);
    for (int o = 1; o < std::ssize(graph.operators); ++o) {
      EXPECT_EQ(std::ranges::binary_search(points, o), carries_gradients(graph, o))
          << graph.name << ": " << graph.operators[static_cast<std::size_t>(o)].name;
    }
    for (const int block : cut_points(graph, "block")) {
      EXPECT_TRUE(std::ranges::binary_search(points, block)) << graph.name;
    }
  }
}

/// Something without parameters stands before the first linear: nothing goes back to it.
TEST(Stages, DoNotBeginBehindOperatorsThatHaveNoGradient) {
  GraphBuilder builder("late");
  int x = builder.input("image", {4}, TensorRole::image);
  const int label = builder.input("label", {}, TensorRole::targets);
  x = builder.relu("first", x);
  x = builder.linear("linear", x, {.in = 4, .out = 4});
  x = builder.linear("head", x, {.in = 4, .out = 2});
  builder.cross_entropy("loss", x, label);
  const ModelGraph graph = builder.finish(1);
  EXPECT_EQ(cut_points(graph, "operator"), (std::vector{0, 2, 3}));
  EXPECT_TRUE(refusal([&] {
                cut_into_stages(graph, {.count = 4, .cut_at = "operator"});
              }).starts_with("4 stages of late, which has 3 places to begin a stage at"));
}

/// The least largest cost of two or three stages at any operator, by trying all of them.
double least_largest_at_operators(const ModelGraph& graph, int count, const std::string& cut_by) {
  const std::vector<int> points = cut_points(graph, "operator");
  const int end = static_cast<int>(graph.operators.size());
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t a = 1; a < points.size(); ++a) {
    std::vector<Stage> stages = {{0, points[a]}, {points[a], end - points[a]}};
    if (count == 2) least = std::min(least, largest_cost(graph, stages, cut_by));
    for (std::size_t b = a + 1; b < points.size() && count == 3; ++b) {
      stages = {{0, points[a]}, {points[a], points[b] - points[a]}, {points[b], end - points[b]}};
      least = std::min(least, largest_cost(graph, stages, cut_by));
    }
  }
  return least;
}

TEST(Stages, CutAtOperatorsTheLargestIsAsSmallAsItCanBe) {
  for (const ModelGraph& graph : models()) {
    for (const char* cut_by : {"flops", "operators", "parameters"}) {
      for (const int count : {2, 3}) {
        const std::vector<Stage> stages =
            cut_into_stages(graph, {.count = count, .cut_by = cut_by, .cut_at = "operator"});
        EXPECT_EQ(largest_cost(graph, stages, cut_by), least_largest_at_operators(graph, count, cut_by))
            << graph.name << " in " << count << " by " << cut_by;
        EXPECT_EQ(stages.back().end(), std::ssize(graph.operators));
      }
    }
  }
}

TEST(Stages, BeginWhereThePlanSays) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const auto at = [&](const char* name) {
    return static_cast<int>(std::ranges::find(graph.operators, name, &Operator::name) - graph.operators.begin());
  };
  const int first = at("block[0].attn.core"), second = at("block[1].mlp.fc1");
  const Stages stages{.count = 3, .cut_at = "operator", .begins = {"block[0].attn.core", "block[1].mlp.fc1"}};
  const int end = static_cast<int>(graph.operators.size());
  EXPECT_EQ(cut_into_stages(graph, stages),
            (std::vector<Stage>{{0, first}, {first, second - first}, {second, end - second}}));
  Stages between_blocks = stages;
  between_blocks.cut_at = "block";
  EXPECT_EQ(refusal([&] { cut_into_stages(graph, between_blocks); }),
            "stages.begins: no stage of gpt-nano can begin with block[0].attn.core where stages.cut_at = block");
}

/// Small layers, whose biases weigh something: with 2 FLOPs a weight, the square root of a linear's beside it.
TEST(Stages, BiasesMoveSomeCutsWhereTheyAreCountedAsThePaperDoes) {
  int num_moved = 0;
  for (std::int64_t seed = 0; seed < 100; ++seed) {
    std::vector<std::int64_t> widths;
    for (std::int64_t l = 0; l < 8; ++l) widths.push_back(2 + (seed * 7 + l * l * (seed + 3)) % 11);
    const ModelGraph graph = mlp(widths);
    const std::vector<Stage> stages = cut_into_stages(graph, {3, "flops_paper"});
    EXPECT_EQ(largest_cost(graph, stages, "flops_paper"), least_largest(graph, 3, "flops_paper")) << seed;
    num_moved += stages != cut_into_stages(graph, {3, "flops"}) ? 1 : 0;
  }
  EXPECT_GT(num_moved, 0);
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
    const ModelGraph part = graph_of(graph, std::array{stage});
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
}  // namespace strata::test_stages
