/// @file
/// Oases' planner of degrees on described clusters, and Alpa's: what it proposes fits by its Program and is never
/// simulated slower than one degree for all; every family of transformers is a chain; what it refuses, it refuses with
/// numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/sweep.hpp"
#include "planners/oases/chain_of_model.hpp"
#include "planners/oases/chain_seconds.hpp"
#include "predict/plan_evaluation.hpp"
#include "predict/prepared_point.hpp"
#include "predict/strategy_options.hpp"
#include "support/rank_correlation.hpp"
#include "support/refusal.hpp"

namespace strata::predict::test_degrees_of_oases {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* file = "/no/such/folder/e.toml";
constexpr const char* six_layers = R"(name = "degrees"
cluster = "rtx3090-pcie"
[model]
name = "gpt"
layers = 6
hidden = 2048
heads = 32
ffn_hidden = 8192
vocabulary = 1024
sequence_length = 1024
[data]
format = "synthetic"
[resources]
nodes = 8
ranks_per_node = 4
[train]
global_batch = 128
micro_batches = 1
dtype = "fp32"
[strategy]
name = "oases"
)";

Experiment experiment(const std::vector<std::string>& overrides = {}) {
  return expand(read_experiment(six_layers, "e.toml", overrides), "simulated").points.at(0).experiment;
}
PreparedPoint planned(const std::vector<std::string>& overrides = {}) {
  return prepare_point(experiment(overrides), file);
}

std::vector<std::string> and_with(std::vector<std::string> words, const std::string& word) {
  words.push_back(word);
  return words;
}

/// Of an MLP every layer is a block, and sums come behind every second one: a node has two blocks.
TEST(DegreesOfOases, ANodeMayHaveSeveralBlocks) {
  const std::string text = R"(name = "mlp"
cluster = "rtx3090-pcie"
[model]
name = "autoddl-mlp"
[data]
format = "synthetic"
[resources]
nodes = 2
ranks_per_node = 4
memory_gib = 1000
[train]
global_batch = 128
dtype = "fp32"
[strategy]
name = "oases"
)";
  const Experiment mlp = expand(read_experiment(text, "mlp.toml"), "simulated").points.at(0).experiment;
  const PreparedPoint point = prepare_point(mlp, file);
  EXPECT_THAT(point.plan.why.binding, HasSubstr("degrees "));
  EXPECT_GT(point.plan.why.predicted_seconds, 0.0);
  EXPECT_EQ(PlanEvaluation(point, file)(point.plan).step_seconds, point.plan.why.predicted_seconds);
}

TEST(DegreesOfOases, FitAndAreNeverSlowerThanOneDegree) {
  int mixed = 0;
  for (const std::string gib : {"24", "6", "5", "4.5", "4"}) {
    const std::vector<std::string> words = {"resources.memory_gib=" + gib};
    const PreparedPoint point = planned(words);
    const PlanEvaluation evaluate(point, file);
    const Evaluation by_nodes = evaluate(point.plan);
    EXPECT_TRUE(by_nodes.feasible()) << gib << ": " << by_nodes.missing;
    EXPECT_EQ(point.plan.why.predicted_peak_bytes, by_nodes.peak_bytes);
    EXPECT_EQ(point.plan.why.predicted_seconds, by_nodes.step_seconds);
    const Evaluation uniform = evaluate(planned(and_with(words, "strategy.planner=false")).plan);
    EXPECT_LE(by_nodes.step_seconds, uniform.step_seconds) << gib;
    mixed += by_nodes.step_seconds < uniform.step_seconds ? 1 : 0;
  }
  EXPECT_GE(mixed, 2) << "memory that lies between two degrees is used by mixing them";
}

TEST(DegreesOfOases, ChainsAreOfAnyTransformer) {
  for (const char* model : {"gpt", "llama"}) {
    const std::vector<std::string> words = {std::string("model.name=") + model, "resources.memory_gib=5"};
    EXPECT_THAT(
        linear_program(experiment(words), file),
        AllOf(HasSubstr("attn.proj"), HasSubstr("* choice 0: tensor 1x1"), HasSubstr("L memory"), HasSubstr("ENDATA")))
        << model;
  }
}

/// The head of a tied model is the table of words, so they have one degree.
TEST(DegreesOfOases, UsersOfOneWeightHaveOneDegree) {
  const PreparedPoint point = planned({"model.tied_head=true", "resources.memory_gib=5"});
  const std::vector<OperatorDecision> decisions = resolve(point.plan, point.graph);
  std::vector<int> degrees;
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const std::string& name = point.graph.operators[o].name;
    if (name == "embedding" || name == "head") degrees.push_back(decisions[o].layout->p0.total());
  }
  ASSERT_EQ(degrees.size(), 2U);
  EXPECT_EQ(degrees[0], degrees[1]);
  EXPECT_THAT(linear_program(experiment({"model.tied_head=true"}), file), HasSubstr(" E ends_0\n"));
  EXPECT_THAT(linear_program(experiment(), file), Not(HasSubstr("ends_0")));
}

TEST(DegreesOfOases, EveryCostAndSearchPlans) {
  for (const char* words : {"strategy.cost=paper", "strategy.cost=authors", "strategy.search=authors",
                            "strategy.reshard=blocking", "strategy.sub_batches=0", "strategy.sub_batches=3"}) {
    const PreparedPoint point = planned({words, "resources.memory_gib=5"});
    EXPECT_THAT(point.plan.why.binding, HasSubstr("the chain")) << words;
    EXPECT_LE(point.plan.why.predicted_peak_bytes, point.plan.device_capacity_bytes) << words;
  }
}

PreparedPoint alpa(const std::vector<std::string>& words) {
  return planned(and_with(and_with(words, "strategy.name=alpa"), "train.recompute=whole_block"));
}

TEST(DegreesOfAlpa, AreTheSameByEitherSearch) {
  for (const char* gib : {"24", "3", "2.5"}) {
    const std::vector<std::string> words = {"model.layers=2", std::string("resources.memory_gib=") + gib};
    EXPECT_EQ(alpa(words).plan, alpa(and_with(words, "strategy.search=exhaustive")).plan) << gib;
  }
}

/// Its chain has one sub-batch, under whose sums nothing runs; where memory lies between two degrees it mixes them.
TEST(DegreesOfAlpa, AreNeverSlowerThanOneDegree) {
  int mixed = 0;
  for (const std::string gib : {"24", "6", "5", "4.5", "4"}) {
    const std::vector<std::string> words = {"resources.memory_gib=" + gib};
    const PreparedPoint point = alpa(words);
    EXPECT_EQ(point.plan.schedule.sub_batches, 1);
    EXPECT_LE(point.plan.why.predicted_peak_bytes, point.plan.device_capacity_bytes) << gib;
    std::vector<std::string> uniform = {"strategy.name=megatron", "strategy.sum=all_reduce",
                                        "strategy.tensor_in_node=false", "train.recompute=whole_block"};
    uniform.insert(uniform.end(), words.begin(), words.end());
    const PreparedPoint megatron = planned(uniform);
    const double of_megatron = PlanEvaluation(megatron, file)(megatron.plan).step_seconds;
    EXPECT_LE(point.plan.why.predicted_seconds, of_megatron) << gib;
    mixed += point.plan.why.predicted_seconds < of_megatron ? 1 : 0;
  }
  EXPECT_GE(mixed, 2);
}

/// Blocks whose attention takes much longer than its FLOPs say, and a head whose product does not.
const std::vector<std::string> heavy_head = {"model.layers=7",        "model.hidden=512",       "model.heads=8",
                                             "model.ffn_hidden=2048", "model.vocabulary=32768", "resources.nodes=2",
                                             "train.global_batch=64", "train.micro_batches=8"};

PreparedPoint in_stages(std::vector<std::string> words, const char* stages, const char* construction) {
  words.insert(words.begin(), heavy_head.begin(), heavy_head.end());
  return alpa(and_with(and_with(words, std::string("strategy.stages=") + stages),
                       std::string("strategy.stage_construction=") + construction));
}

/// And which of them was taken is said.
TEST(StagesOfAlpa, AreTheFastestOfAllConstructions) {
  int unequal = 0;
  for (const char* tensor : {"1x1", "2x1", "planner"}) {
    const std::vector<std::string> words = {std::string("strategy.tensor=") + tensor};
    const PreparedPoint found = in_stages(words, "4", "auto");
    const double by_flops = in_stages(words, "4", "cut_by").plan.why.predicted_seconds,
                 uniform = in_stages(words, "4", "uniform").plan.why.predicted_seconds;
    EXPECT_LE(found.plan.why.predicted_seconds, std::min(by_flops, uniform)) << tensor;
    EXPECT_EQ(found.plan.stages.begins.size(), 3U);
    EXPECT_EQ(PlanEvaluation(found, file)(found.plan).step_seconds, found.plan.why.predicted_seconds);
    const bool is_unequal = found.plan.why.predicted_seconds < std::min(by_flops, uniform);
    EXPECT_THAT(found.plan.why.binding, HasSubstr(is_unequal ? "4 stages by dynamic programming" : "4 stages"));
    unequal += is_unequal ? 1 : 0;
  }
  EXPECT_GE(unequal, 2) << "a cut that neither FLOPs nor the number of blocks says is the fastest";
}

TEST(StagesOfAlpa, UniformOnesHaveEquallyManyBlocks) {
  const PreparedPoint point = in_stages({}, "2", "uniform");
  EXPECT_THAT(point.plan.stages.begins, ::testing::ElementsAre("block[3].attn.norm"));
  EXPECT_THAT(point.plan.why.binding, HasSubstr("2 stages of equally many blocks"));
}

/// Their number is searched as well: never slower than any number that is given.
TEST(StagesOfAlpa, AreAsManyAsTakeLeastTime) {
  for (const char* construction : {"cut_by", "auto"}) {
    const PreparedPoint searched = in_stages({}, "0", construction);
    double fastest = 1e9;
    for (const char* stages : {"1", "2", "4"}) {
      fastest = std::min(fastest, in_stages({}, stages, construction).plan.why.predicted_seconds);
    }
    EXPECT_EQ(searched.plan.why.predicted_seconds, fastest) << construction;
    EXPECT_THAT(searched.plan.why.binding, HasSubstr(searched.plan.stages.count == 1 ? "1 stage" : " stages"));
  }
}

TEST(StagesOfAlpa, RefuseWithNumbers) {
  for (const char* stages : {"4", "0"}) {
    EXPECT_THAT(refusal([&] {
                  in_stages({"strategy.schedule=interleaved", "strategy.chunks=2"}, stages, "auto");
                }),
                HasSubstr(std::string("alpa with stages = ") + stages +
                          " on 8 ranks: stage_construction = \"auto\" with schedule = \"interleaved\", chunks = 2"));
  }
  EXPECT_THAT(refusal([] { in_stages({}, "16", "auto"); }), HasSubstr("16 stages"));
  EXPECT_THAT(refusal([] {
                linear_program(experiment({"strategy.name=alpa", "strategy.stages=0"}), file);
              }),
              HasSubstr("stages = 0"));
}

/// The paper's figure 6, with what is simulated in place of what was measured: 0.844 and 0.876 there.
TEST(DegreesOfOases, ChainsOrderPlansAsTheSimulatorDoes) {
  const PreparedPoint point = planned({"train.global_batch=512", "train.micro_batches=4"});
  const PlanEvaluation evaluate(point, file);
  Plan base = point.plan;
  base.operators.clear();
  const std::map<std::string, OptionValue> options = complete_strategy_options(point.experiment);
  const PlanRequest request{
      .graph = point.graph, .cluster = point.cluster, .base = base, .options = options, .evaluate = &evaluate};
  const LayoutPlanning planning(request, {}, MatmulAlgorithm::local, PartialSums::all_reduce);
  const ChainNodes nodes = chain_nodes(point.graph, planning.chain(), planning.grid());
  const std::vector<NodeChoice> choices_of_a_node = {{{1, 1}}, {{2, 1}}, {{4, 1}}, {{4, 2}}};
  const PlanOfPart plan_of = [](const PlanRequest&, const LayoutPlanning& of, const NodePlan& chosen, int) {
    return of.with_rules(chosen.layouts);
  };
  const Chain chain = chain_of_model(request, planning, nodes, choices_of_a_node, 2, ChainCosts::links, plan_of);
  std::mt19937 generator(1);
  std::vector<double> by_chain, simulated;
  constexpr int num_plans = 44;
  for (int k = 0; k < num_plans; ++k) {
    std::vector<int> choices;  // the first are the same everywhere; others change with every node, or seldom
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const bool changes =
          i > 0 && nodes.block[i] >= 0 && nodes.block[i - 1] >= 0 && static_cast<int>(generator() % 3) <= k % 3;
      const int any = static_cast<int>(generator() % choices_of_a_node.size());
      choices.push_back(k < 4 ? k : (i == 0 || changes) ? any : choices.back());
    }
    const Plan plan = planning.with_rules(node_plan(planning, nodes, choices_of_a_node, choices).layouts);
    by_chain.push_back(chain_seconds(chain, choices));
    simulated.push_back(evaluate(plan).step_seconds);
  }
  EXPECT_GE(rank_correlation(by_chain, simulated), 0.99);
}

/// What memory has room for is not computed again; with room for all of it nothing is, and no pass is crossed.
TEST(DegreesOfOases, SelectiveRecomputationUsesMemoryThatIsLeft) {
  for (const std::string gib : {"24", "8", "6", "5"}) {
    const std::vector<std::string> words = {"resources.memory_gib=" + gib};
    const PreparedPoint all = planned(words), selected = planned(and_with(words, "strategy.selective=true"));
    EXPECT_LE(selected.plan.why.predicted_seconds, all.plan.why.predicted_seconds) << gib;
    EXPECT_LE(selected.plan.why.predicted_peak_bytes, selected.plan.device_capacity_bytes) << gib;
    const bool keeps_all = selected.plan.recompute == Recompute::none;
    EXPECT_EQ(keeps_all, gib == "24" || gib == "8") << gib;
    EXPECT_EQ(keeps_all, !selected.plan.schedule.cross_pass);
    int kept = 0;
    for (const OperatorRule& rule : selected.plan.operators) kept += rule.recompute == Recompute::none ? 1 : 0;
    EXPECT_EQ(kept > 0, !keeps_all) << gib;
  }
  EXPECT_THAT(linear_program(experiment({"strategy.selective=true"}), file),
              HasSubstr("* choice 6: tensor 1x1, not computed again"));
}

TEST(DegreesOfOases, RefusesWithNumbers) {
  EXPECT_THAT(out_of_memory([] { planned({"resources.memory_gib=0.5"}); }),
              AllOf(HasSubstr("nothing fits into a device memory of 0.5000 GiB"), HasSubstr("bytes too much")));
  EXPECT_THAT(refusal([] { planned({"strategy.search=exhaustive"}); }),
              HasSubstr("14 nodes of 6 choices have 7.84e+10; accepted: exact"));
  for (const auto& [word, why] : {std::pair("strategy.tensor=2x1", "tensor 2x1 alone is possible, or was asked for"),
                                  std::pair("strategy.planner=false", "planner = false"),
                                  std::pair("strategy.stages=2", "2 stages, whose chains are not planned"),
                                  std::pair("strategy.search=authors", "search = authors")}) {
    EXPECT_THAT(refusal([&] {
                  planned({"strategy.selective=true", word});
                }),
                AllOf(HasSubstr("oases on 32 ranks: selective = true with"), HasSubstr(why)));
  }
  EXPECT_THAT(refusal([] { linear_program(experiment({"strategy.tensor=2x1"}), file); }),
              HasSubstr("no linear program here: tensor 2x1 alone is possible"));
  EXPECT_THAT(refusal([] { linear_program(experiment({"strategy.name=ddp"}), file); }),
              HasSubstr("ddp does not search a linear program; accepted with --format mps: alpa, oases"));
}

}  // namespace
}  // namespace strata::predict::test_degrees_of_oases
