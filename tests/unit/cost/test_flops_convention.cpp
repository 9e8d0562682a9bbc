/// @file
/// FLOPs a token against what papers print and against each convention's formula written out by hand.

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.hpp"
#include "cost/flops_convention.hpp"
#include "models/model.hpp"

namespace strata::test_flops_convention {
namespace {

using enum FlopsConvention;
using ::testing::HasSubstr;

double flops(const ModelOptions& options, FlopsConvention convention, bool recomputes = false) {
  return training_flops_per_position(build_model(options), convention, recomputes);
}

std::string refusal(const ModelGraph& graph, FlopsConvention convention) {
  try {
    training_flops_per_position(graph, convention);
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "no error";
}

/// GFLOP with the digits a paper prints.
std::string giga(double value) { return ::testing::PrintToString(std::round(value / 1e8) / 10.0); }

TEST(FlopsConvention, InternevoGivesWhatAmspDividesBy) {
  EXPECT_EQ(giga(flops({.name = "llama-7b"}, internevo)), "45.9");
  EXPECT_EQ(giga(flops({.name = "llama-13b"}, internevo)), "86.5");
  EXPECT_EQ(giga(flops({.name = "llama-30b"}, internevo)), "182.4");
  // The released model's wider MLP.
  EXPECT_EQ(giga(flops({.name = "llama-7b", .ffn_hidden = 11008}, internevo)), "46.1");
  // Exact where 8/3 h is an integer: 3 (24 h² + 4 s h) L + 6 h V.
  const double h = 6144, s = 4096, layers = 60, v = 32000;
  EXPECT_EQ(flops({.name = "llama-30b"}, internevo), 3 * (24 * h * h + 4 * s * h) * layers + 6 * h * v);
}

TEST(FlopsConvention, MegatronHalvesCausalAttention) {
  EXPECT_EQ(giga(flops({.name = "llama-7b"}, megatron)), "42.6");  // 42.7 with 8/3 h exactly
  EXPECT_EQ(giga(flops({.name = "llama-30b"}, megatron)), "173.3");
  // 72 h² L (1 + s/(12 h) + V/(12 L h)) for plain attention and f = 4 h.
  const double h = 768, s = 1024, layers = 12, v = 50257;
  EXPECT_EQ(flops({.name = "gpt2-small"}, megatron), 72 * h * h * layers + 6 * layers * s * h + 6 * h * v);
  EXPECT_EQ(flops({.name = "gpt2-small", .tied_head = false}, megatron), flops({.name = "gpt2-small"}, megatron));
}

TEST(FlopsConvention, MegatronCountsGroupedHeadsAndGatedMlps) {
  const double h = 64, q = 64, kv = 32, f = 160, s = 64, layers = 2, v = 256;
  EXPECT_EQ(flops({.name = "llama-nano"}, megatron),
            6 * h * f * 3 * layers + 6 * (h * (q + 2 * kv) + q * h) * layers + 6 * h * v + 6 * s * q * layers);
}

TEST(FlopsConvention, MegatronEqualsTheProductsOfTheGraph) {
  // Forward and backward of every linear and of causal attention are exactly what Megatron counts.
  for (const char* name : {"gpt2-medium", "llama-7b", "llama-nano", "mingpt-ic-24", "oases-1024"}) {
    const ModelGraph graph = build_model({.name = name});
    EXPECT_DOUBLE_EQ(training_flops_per_position(graph, megatron), training_flops_per_position(graph, operators))
        << name;
  }
}

TEST(FlopsConvention, Sc21IsEquationThree) {
  // 96 B s L h² (1 + s/(6 h) + V/(16 L h)) with recomputation; 175B-class row of table 1 (145.6B).
  const double h = 12288, s = 2048, layers = 80, v = 51200;
  const double equation = 96 * layers * h * h * (1 + s / (6 * h) + v / (16 * layers * h));
  EXPECT_DOUBLE_EQ(flops({.name = "megatron-145.6b"}, sc21, true), equation);
  EXPECT_DOUBLE_EQ(flops({.name = "megatron-145.6b"}, sc21), 0.75 * equation);
  // A gated MLP: 32 for 24.
  const double lh = 6144, ls = 4096, ll = 60, lv = 32000;
  EXPECT_DOUBLE_EQ(flops({.name = "llama-30b"}, sc21), 96 * ll * lh * lh * (1 + ls / (6 * lh) + lv / (16 * ll * lh)));
}

TEST(FlopsConvention, PalmIsSixTimesAllParametersAndWholeAttention) {
  EXPECT_EQ(flops({.name = "gpt2-small"}, palm), 6.0 * 124439808 + 12.0 * 12 * 768 * 1024);
}

TEST(FlopsConvention, TorchtitanLeavesOutWhatIsOnlyLookedUp) {
  const double attention = 12.0 * 2 * 64 * 64;
  const ModelGraph llama = build_model({.name = "llama-nano"});
  EXPECT_EQ(training_flops_per_position(llama, torchtitan),
            6.0 * static_cast<double>(llama.num_parameters() - 256 * 64) + attention);
  // A tied table is looked up and multiplied: only the positions are left out.
  const ModelGraph gpt = build_model({.name = "gpt-nano"});
  EXPECT_EQ(training_flops_per_position(gpt, torchtitan),
            6.0 * static_cast<double>(gpt.num_parameters() - 64 * 64) + attention);
}

TEST(FlopsConvention, OnlySc21CountsRecomputation) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  for (const FlopsConvention convention : {megatron, internevo, palm, torchtitan, operators}) {
    EXPECT_EQ(training_flops_per_position(graph, convention, true),
              training_flops_per_position(graph, convention, false))
        << to_string(convention);
  }
}

TEST(FlopsConvention, OperatorsOfNetworksOnImages) {
  // Twice forward for backward, but no gradient of the image.
  const double first = 2.0 * 48 * 64, second = 2.0 * 64 * 32, third = 2.0 * 32 * 10;
  EXPECT_EQ(flops({.name = "mlp-tiny"}, operators), 2 * first + 3 * second + 3 * third);
  const double vgg13_products = 2.0 * 11308466176.0;  // multiply-adds counted twice
  const double first_convolution = 2.0 * 224 * 224 * 64 * 27;
  EXPECT_EQ(flops({.name = "vgg13"}, operators), 3 * vgg13_products - first_convolution);
}

TEST(FlopsConvention, TransformersConventionsRefuseOthersByName) {
  const ModelGraph vgg = build_model({.name = "vgg-nano"});
  const ModelGraph mlp = build_model({.name = "mlp-tiny"});
  for (const FlopsConvention convention : {megatron, sc21, internevo, palm, torchtitan}) {
    EXPECT_THAT(refusal(vgg, convention), HasSubstr(std::string(to_string(convention))));
    EXPECT_THAT(refusal(vgg, convention), HasSubstr("block[0].conv[0]"));
    EXPECT_THAT(refusal(mlp, convention), HasSubstr("the graph has no attention"));
  }
  EXPECT_EQ(default_flops_convention(vgg), operators);
  EXPECT_EQ(default_flops_convention(mlp), operators);
  EXPECT_EQ(default_flops_convention(build_model({.name = "llama-nano"})), megatron);
}

TEST(FlopsConvention, FormulasForEqualLayersRefuseUnequalOnes) {
  const ModelGraph graph = build_model({.name = "mingpt-ic-24"});
  EXPECT_THAT(refusal(graph, sc21), HasSubstr("needs equal layers, but hidden goes from 1024 to 2048"));
  EXPECT_THAT(refusal(graph, internevo), HasSubstr("needs equal layers"));
  EXPECT_EQ(refusal(graph, palm), "no error");
}

TEST(FlopsConvention, MegatronRefusesAttentionThatIsNotCausal) {
  ModelGraph graph = build_model({.name = "gpt-nano", .layers = 1});
  for (Operator& op : graph.operators) {
    if (op.kind == OperatorKind::attention) op.attributes.set("causal", 0);
  }
  EXPECT_THAT(refusal(graph, megatron), HasSubstr("`block[0].attn.core` is not causal"));
  EXPECT_EQ(refusal(graph, internevo), "no error");
}

TEST(FlopsConvention, OfAttentionThatSeesAllOperatorsAreCounted) {
  const ModelGraph graph = build_model({.name = "vit-nano"});
  EXPECT_EQ(default_flops_convention(graph), operators);
  EXPECT_THAT(refusal(graph, megatron), HasSubstr("has no term for the convolution `patch`"));
  // Patches of 4·4·3 values without a gradient of the image, two blocks on 17 tokens, the head on one.
  const double patches = 2.0 * 16 * 48 * 32, head = 2.0 * 32 * 10;
  const double block = 2.0 * 17 * 12 * 32 * 32 + 4.0 * 17 * 17 * 32;
  EXPECT_EQ(training_flops_per_position(graph, operators), 2 * patches + 3 * (2 * block + head));
}

TEST(FlopsConvention, NamesReadBack) {
  for (const FlopsConvention convention : {megatron, sc21, internevo, palm, torchtitan, operators}) {
    EXPECT_EQ(parse_flops_convention(to_string(convention)), convention);
  }
  EXPECT_THROW(parse_flops_convention("Megatron"), UserError);
}

}  // namespace
}  // namespace strata::test_flops_convention
