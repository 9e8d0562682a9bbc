/// @file
/// The mode oases: its settings are the plans that its paper compares, with degrees a layer in any order; what it
/// refuses, it refuses with numbers. Of the modes that it is compared with: which of its settings they are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "planners/layouts/degrees_of_layers.hpp"
#include "sharded.hpp"
#include "support/refusal.hpp"

namespace strata::test_oases {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Options = std::map<std::string, OptionValue>;

ModelGraph gpt(bool is_tied = false) {
  return build_model({.name = "gpt",
                      .layers = 4,
                      .hidden = 64,
                      .heads = 8,
                      .ffn_hidden = 128,
                      .vocabulary = 128,
                      .sequence_length = 8,
                      .tied_head = is_tied});
}

Plan asked(std::int64_t batch, int nodes = 2) {
  Plan plan = asked_on({4, nodes}, 1);
  plan.dtypes = {DType::f32, DType::f32};
  plan.global_batch = batch;
  return plan;
}

Plan oases(const Plan& base, Options options, const ModelGraph& graph = gpt()) {
  return planned("oases", graph, base, std::move(options));
}

/// Ranks over which each layer's first product is cut.
std::vector<int> degrees_of(const Plan& plan, const ModelGraph& graph) {
  std::vector<int> degrees;
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    if (graph.operators[o].name.ends_with("attn.qkv")) degrees.push_back(decisions[o].layout->p1.total());
  }
  return degrees;
}

TEST(DegreesOfLayers, AreWrittenAsThePaperWritesThem) {
  EXPECT_THAT(parse_degrees("2*2+4*1"), ElementsAre(2, 2, 4));
  EXPECT_THAT(parse_degrees(" 8 + 2*3 "), ElementsAre(8, 2, 2, 2));
  EXPECT_EQ(degrees_text({2, 2, 4, 2}), "2*2+4*1+2*1");
  for (const char* wrong : {"2*", "0*3", "2*3+", "two", "2*-1", "2*99999999", "2x2"}) {
    EXPECT_THAT(words_of<UserError>([&] { parse_degrees(wrong); }), HasSubstr("accepted: such as 2*8+4*16")) << wrong;
  }
}

/// Neighbours first, as links join them in pairs, then whole nodes.
TEST(DegreesOfLayers, RanksAreAsNearAsTheyCanBe) {
  EXPECT_EQ(nearest_ranks({4, 2}, 1), (Factor{1, 1}));
  EXPECT_EQ(nearest_ranks({4, 2}, 2), (Factor{2, 1}));
  EXPECT_EQ(nearest_ranks({4, 2}, 8), (Factor{4, 2}));
  for (const int degree : {3, 6, 16}) {
    EXPECT_THAT(refusal([&] { nearest_ranks({4, 2}, degree); }), HasSubstr(std::to_string(degree)));
  }
}

TEST(Oases, SettingsAreTheColumnsOfThePapersTable) {
  const Plan all = oases(asked(16), {{"tensor", std::string("4x1")}});
  EXPECT_EQ(all.schedule.sub_batches, 2);
  EXPECT_TRUE(all.schedule.cross_pass);
  EXPECT_EQ(all.recompute, Recompute::after_communication);
  Plan base = asked(16);
  base.recompute = Recompute::whole_block;
  const Plan merak = oases(base, {{"tensor", std::string("4x1")}, {"cross_pass", false}, {"fine_recompute", false}});
  EXPECT_FALSE(merak.schedule.cross_pass);
  EXPECT_EQ(merak.recompute, Recompute::whole_block);
  // Without any of it: Megatron's plan.
  Plan plain = oases(base, {{"tensor", std::string("4x1")},
                            {"cross_pass", false},
                            {"fine_recompute", false},
                            {"sub_batches", std::int64_t{1}}});
  Plan megatron =
      planned("megatron", gpt(), base, {{"tensor", std::string("4x1")}, {"sum", std::string("all_reduce")}});
  plain.why = megatron.why = {};
  plain.strategy = megatron.strategy;
  EXPECT_EQ(plain, megatron);
}

/// Of a plan: what ranks do, and not who planned it or why.
Plan work_of(Plan plan) {
  plan.strategy.clear();
  plan.why = {};
  return plan;
}

TEST(Merak, IsOasesWithoutCrossingPasses) {
  for (const Recompute recompute : {Recompute::none, Recompute::whole_block}) {
    Plan base = asked(16);
    base.recompute = recompute;
    const Plan merak = planned("merak", gpt(), base, {{"tensor", std::string("4x1")}});
    EXPECT_EQ(merak.schedule.sub_batches, 2);
    EXPECT_FALSE(merak.schedule.cross_pass);
    EXPECT_EQ(merak.recompute, recompute);
    EXPECT_EQ(
        work_of(merak),
        work_of(oases(
            base,
            {{"tensor", std::string("4x1")}, {"cross_pass", false}, {"fine_recompute", false}, {"planner", false}})));
  }
  EXPECT_THAT(refusal([] {
                planned("merak", gpt(), asked(8), {{"tensor", std::string("1x1")}});
              }),
              HasSubstr("2 sub-batches of 1 samples of a group of ranks (8 over 8 groups)"));
}

TEST(Alpa, IsMegatronWhereOneDegreeIsAskedFor) {
  const Plan alpa = planned("alpa", gpt(), asked(16), {{"tensor", std::string("4x1")}});
  EXPECT_EQ(alpa.schedule.sub_batches, 1);
  EXPECT_EQ(work_of(alpa), work_of(planned("megatron", gpt(), asked(16),
                                           {{"tensor", std::string("4x1")}, {"sum", std::string("all_reduce")}})));
  const std::vector<int> degrees = {2, 8, 1, 4};
  EXPECT_EQ(degrees_of(planned("alpa", gpt(), asked(16), {{"degrees", degrees_text(degrees)}}), gpt()), degrees);
  EXPECT_THAT(refusal([] {
                planned("alpa", gpt(), asked(16), {{"tensor", std::string("3x1")}});
              }),
              HasSubstr("tensor = 3x1 does not divide 4 ranks"));
}

TEST(Oases, DegreesMayRiseFallAndGoToAndFro) {
  for (const bool is_tied : {false, true}) {
    const ModelGraph graph = gpt(is_tied);
    for (const std::vector<int>& degrees : {std::vector{1, 2, 4, 8}, {8, 4, 2, 1}, {2, 8, 1, 4}}) {
      const Plan plan = oases(asked(16), {{"degrees", degrees_text(degrees)}}, graph);
      EXPECT_EQ(degrees_of(plan, graph), degrees);
      EXPECT_NO_THROW(verify(plan, graph));
    }
  }
}

TEST(Oases, RefusesWithNumbers) {
  const auto refused = [](const Plan& base, Options options) { return refusal([&] { oases(base, options); }); };
  EXPECT_THAT(refused(asked(16), {{"degrees", std::string("2*3")}}),
              HasSubstr("3 degrees for a model of 4 layers: 2*3"));
  EXPECT_THAT(refused(asked(16), {{"degrees", std::string("3*4")}}), HasSubstr("a tensor degree of 3"));
  EXPECT_THAT(refused(asked(16, 4), {{"degrees", std::string("16*4")}}),
              HasSubstr("degrees 16*4: block[0].attn.qkv: 8 heads of block[0].attn.core are fewer"));
  EXPECT_THAT(refused(asked(16), {{"tensor", std::string("3x1")}}), HasSubstr("tensor = 3x1 does not divide 4 ranks"));
  EXPECT_THAT(refused(asked(8), {{"tensor", std::string("1x1")}}),
              HasSubstr("2 sub-batches of 1 samples of a group of ranks (8 over 8 groups)"));
  EXPECT_THAT(refused(asked(16), {{"tensor", std::string("4x1")}, {"sub_batches", std::int64_t{1}}}),
              HasSubstr("cross_pass = true with sub_batches = 1"));
  EXPECT_THAT(refused(asked(16), {{"tensor", std::string("4x1")}, {"fine_recompute", false}}),
              HasSubstr("fine_recompute = false and train.recompute = \"none\""));
  EXPECT_THAT(words_of<UserError>([] {
                oases(asked(16), {{"tensor", std::string("4x1")}, {"degrees", std::string("4*4")}});
              }),
              HasSubstr("accepted: one of them"));
  // A machine of which nobody knows what a collective takes.
  EXPECT_THAT(refusal([] { planned("oases", gpt(), asked(16), {}, Cluster{}); }), HasSubstr("set strategy.tensor"));
}

}  // namespace
}  // namespace strata::test_oases
