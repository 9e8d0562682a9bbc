/// @file
/// Operators cut into slices: which columns a slice has, what becomes of graph and decisions, what is refused.

#include <gmock/gmock.h>

#include <map>
#include <numeric>

#include "base/error.hpp"
#include "partition/operator_splitting.hpp"
#include "support/refusal.hpp"

namespace strata::test_operator_splitting {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SliceColumns, CoverAllColumnsAsEvenlyAsTheyCan) {
  for (const std::int64_t columns : {1, 7, 12, 768, 769}) {
    for (int slices = 1; slices <= std::min<std::int64_t>(columns, 16); ++slices) {
      std::int64_t next = 0;
      for (int s = 0; s < slices; ++s) {
        const ColumnBlock block = slice_columns(columns, slices, s);
        EXPECT_EQ(block.first, next);
        EXPECT_EQ(block.row, columns);
        EXPECT_GE(block.size, columns / slices);
        EXPECT_LE(block.size, (columns + slices - 1) / slices);
        EXPECT_EQ(is_first(block), s == 0);
        EXPECT_EQ(is_last(block), s + 1 == slices);
        next += block.size;
      }
      EXPECT_EQ(next, columns);
    }
  }
}

/// embedding (table and positions) and a head tied to it around two blocks of norm, linear with bias, relu.
ModelGraph tied_graph() {
  ModelGraph graph;
  graph.name = "tied";
  const auto tensor = [&](const char* name, std::vector<std::int64_t> shape, TensorRole role) {
    graph.tensors.push_back({name, std::move(shape), role});
    return static_cast<int>(graph.tensors.size()) - 1;
  };
  const auto parameter = [&](const std::string& name, std::vector<std::int64_t> shape) {
    graph.parameters.push_back({name, std::move(shape), {}, true});
    return static_cast<int>(graph.parameters.size()) - 1;
  };
  int x = tensor("tokens", {3}, TensorRole::tokens);
  const auto add = [&](const std::string& name, OperatorKind kind, std::vector<int> parameters, Attributes attributes,
                       int block) {
    const int y = tensor(name.c_str(), {3, 10}, TensorRole::activation);
    graph.operators.push_back({.name = name,
                               .kind = kind,
                               .inputs = {x},
                               .outputs = {y},
                               .parameters = std::move(parameters),
                               .attributes = std::move(attributes),
                               .block = block});
    x = y;
  };
  const int table = parameter("embedding.table", {20, 10});
  const int positions = parameter("embedding.positions", {3, 10});
  add("embedding", OperatorKind::embedding, {table, positions}, {{"vocabulary", 20L}, {"width", 10L}}, -1);
  for (int b = 0; b < 2; ++b) {
    const std::string name = "block[" + std::to_string(b) + "]";
    graph.blocks.push_back({.name = name, .first_operator = 1 + 3 * b, .num_operators = 3});
    add(name + ".norm", OperatorKind::rms_norm, {parameter(name + ".norm.weight", {10})}, {{"width", 10L}}, b);
    const int weight = parameter(name + ".fc.weight", {10, 10});
    add(name + ".fc", OperatorKind::linear, {weight, parameter(name + ".fc.bias", {10})}, {{"in", 10L}, {"out", 10L}},
        b);
    add(name + ".relu", OperatorKind::relu, {}, {}, b);
  }
  add("head", OperatorKind::linear, {table}, {{"in", 10L}, {"out", 20L}}, -1);
  return graph;
}

Plan plan_of(std::vector<OperatorRule> rules) {
  Plan plan;
  plan.strategy = "osdp";
  plan.mesh = {.nodes = 1, .ranks_per_node = 4, .axes = {{"data", 4}}};
  plan.global_batch = 4;
  plan.operators = std::move(rules);
  return plan;
}

SplitModel split(const Plan& plan, const ModelGraph& graph) {
  return split_operators(plan, graph, resolve(plan, graph));
}

TEST(OperatorSplitting, WithoutSlicesNothingChanges) {
  const ModelGraph graph = tied_graph();
  const Plan plan = plan_of({{.match = "*", .slices = 1}});
  EXPECT_EQ(split(plan, graph).graph, graph);
}

TEST(OperatorSplitting, ASliceIsAnOperatorWithItsColumnsAndItsMode) {
  const ModelGraph graph = tied_graph();
  const Factor all{4, 1};
  const StateFactors zdp{.p = all, .g = all, .os = all};
  const Plan plan = plan_of({{.match = "*", .state = StateFactors{.p = {}, .g = all, .os = all}},
                             {.match = "block[1].fc", .slices = 3, .slice_state = {"zdp", "dp", "sdp"}},
                             {.match = "block[0].relu", .slices = 5}});
  const SplitModel model = split(plan, graph);
  ASSERT_EQ(model.graph.operators.size(), graph.operators.size() + 2);
  ASSERT_EQ(model.decisions.size(), model.graph.operators.size());
  EXPECT_EQ(model.graph.blocks[0], graph.blocks[0]);
  EXPECT_EQ(model.graph.blocks[1].first_operator, 4);
  EXPECT_EQ(model.graph.blocks[1].num_operators, 5);
  const std::vector<StateFactors> modes = {zdp, {}, {.p = {}, .g = all, .os = all}};
  const std::vector<std::int64_t> sizes = {4, 3, 3};
  for (std::size_t s = 0; s < 3; ++s) {
    const Operator& op = model.graph.operators[5 + s];
    EXPECT_EQ(op.name, "block[1].fc/slice[" + std::to_string(s) + "]");
    EXPECT_EQ(op.inputs, graph.operators[5].inputs);
    EXPECT_EQ(op.outputs, graph.operators[5].outputs);
    EXPECT_EQ(op.attributes.integer("out"), 10);
    EXPECT_EQ(columns_of(op), slice_columns(10, 3, static_cast<int>(s)));
    EXPECT_EQ(op.parameters.size(), s == 0 ? 2U : 1U) << "the bias is with the first slice";
    const Parameter& weight = model.graph.parameters[static_cast<std::size_t>(op.parameters.front())];
    EXPECT_EQ(weight.name, "block[1].fc.weight/slice[" + std::to_string(s) + "]");
    EXPECT_EQ(weight.whole(), "block[1].fc.weight");
    EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{10, sizes[s]}));
    EXPECT_EQ(weight.block, strided(*columns_of(op)));
    EXPECT_EQ(state_of(plan.mesh, model.decisions[5 + s], weight), modes[s]);
    if (s == 0) {
      const Parameter& bias = model.graph.parameters[static_cast<std::size_t>(op.parameters[1])];
      EXPECT_EQ(state_of(plan.mesh, model.decisions[5], bias), modes[2]) << "as the operator";
    }
    EXPECT_TRUE(is_sharded(plan.mesh, model.decisions[5 + s]));
    EXPECT_EQ(model.decisions[5 + s].slices, 0);
  }
  EXPECT_EQ(columns_of(model.graph.operators[2]), std::nullopt);
  EXPECT_EQ(model.graph.operators.back().name, "head");
  EXPECT_EQ(model.graph.num_parameters(), graph.num_parameters());
}

TEST(OperatorSplitting, AHeadAndTheEmbeddingThatItIsTiedToAreCutAlike) {
  const ModelGraph graph = tied_graph();
  const Plan plan = plan_of({{.match = "embedding", .slices = 4}, {.match = "head", .slices = 4}});
  const SplitModel model = split(plan, graph);
  ASSERT_EQ(model.graph.operators.size(), graph.operators.size() + 6);
  for (std::size_t s = 0; s < 4; ++s) {
    const Operator& embedding = model.graph.operators[s];
    const Operator& head = model.graph.operators[model.graph.operators.size() - 4 + s];
    ASSERT_EQ(embedding.parameters.size(), 2U) << "positions are cut with the table";
    EXPECT_EQ(embedding.parameters.front(), head.parameters.front());
    EXPECT_EQ(columns_of(embedding), columns_of(head));
    EXPECT_EQ(model.graph.parameters[static_cast<std::size_t>(embedding.parameters[1])].whole(), "embedding.positions");
  }
  const Plan head_alone = plan_of({{.match = "head", .slices = 4}});
  EXPECT_THAT(words_of<UserError>([&] { verify(head_alone, graph); }),
              HasSubstr("embedding.table is shared by embedding and head, whose rules give it different slices"));
}

TEST(OperatorSplitting, RefusesByName) {
  const ModelGraph graph = tied_graph();
  EXPECT_THAT(words_of<Unsupported>([&] { split(plan_of({{.match = "block[1].*", .slices = 2}}), graph); }),
              HasSubstr("block[1].norm: slices = 2 cannot be lowered: a rms_norm has no input dimension to cut"));
  EXPECT_THAT(words_of<Unsupported>([&] { split(plan_of({{.match = "block[0].fc", .slices = 11}}), graph); }),
              HasSubstr("block[0].fc: slices = 11 cannot be lowered: its weight has 10 columns"));
}

}  // namespace
}  // namespace strata::test_operator_splitting
