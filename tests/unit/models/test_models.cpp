/// @file
/// Presets and families: published parameter counts, closed forms of the operations, structure, refusals.

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "base/error.hpp"
#include "models/model.hpp"

namespace strata::test_models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::size_t index(int id) { return static_cast<std::size_t>(id); }

std::string error_of(const ModelOptions& options) {
  try {
    build_model(options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

const Operator& operator_named(const ModelGraph& graph, std::string_view name) {
  for (const Operator& op : graph.operators) {
    if (op.name == name) return op;
  }
  throw std::runtime_error("no operator " + std::string(name));
}

const Parameter& parameter_named(const ModelGraph& graph, std::string_view name) {
  for (const Parameter& parameter : graph.parameters) {
    if (parameter.name == name) return parameter;
  }
  throw std::runtime_error("no parameter " + std::string(name));
}

double product_flops(const ModelGraph& graph) {
  double flops = 0.0;
  for (const Operator& op : graph.operators) {
    if (op.kind == OperatorKind::linear || op.kind == OperatorKind::convolution || op.kind == OperatorKind::attention) {
      flops += forward_flops(graph, op, 1);
    }
  }
  return flops;
}

// ---- parameters

TEST(Models, ParameterCountsAsPublished) {
  const auto count = [](const ModelOptions& options) { return build_model(options).num_parameters(); };
  // The released GPT-2 checkpoints.
  EXPECT_EQ(count({.name = "gpt2-small"}), 124439808);
  EXPECT_EQ(count({.name = "gpt2-medium"}), 354823168);
  EXPECT_EQ(count({.name = "gpt2-large"}), 774030080);
  EXPECT_EQ(count({.name = "gpt2-xl"}), 1557611200);
  EXPECT_EQ(count({.name = "gpt2-small", .tied_head = false}), 124439808 + 50257 * 768);
  // torchvision's VGG without batch norm.
  EXPECT_EQ(count({.name = "vgg11"}), 132863336);
  EXPECT_EQ(count({.name = "vgg13"}), 133047848);
  EXPECT_EQ(count({.name = "vgg16"}), 138357544);
  // torchvision's ResNets, and their CIFAR form with 10 classes as CDP's experiments have it.
  EXPECT_EQ(count({.name = "resnet18"}), 11689512);
  EXPECT_EQ(count({.name = "resnet50"}), 25557032);
  EXPECT_EQ(count({.name = "resnet18-cifar"}), 11173962);
  EXPECT_EQ(count({.name = "resnet50-cifar"}), 23520842);
  // torchvision's and the paper's ViT-B/16.
  EXPECT_EQ(count({.name = "vit-b16"}), 86567656);
  // The released LLaMA checkpoints, whose MLP is wider than 8/3 h.
  EXPECT_EQ(count({.name = "llama-7b", .ffn_hidden = 11008}), 6738415616);
  EXPECT_EQ(count({.name = "llama-13b", .ffn_hidden = 13824}), 13015864320);
  EXPECT_EQ(count({.name = "mlp-tiny"}), 48 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10);
}

TEST(Models, PapersRoundTheseCounts) {
  const auto billions = [](const char* name) {
    return static_cast<double>(build_model({.name = name}).num_parameters()) / 1e9;
  };
  // SC 2021, table 1.
  EXPECT_NEAR(billions("megatron-1.7b"), 1.7, 0.05);
  EXPECT_NEAR(billions("megatron-18.4b"), 18.4, 0.05);
  EXPECT_NEAR(billions("megatron-145.6b"), 145.6, 0.05);
  EXPECT_NEAR(billions("megatron-1008b"), 1008.0, 0.5);
  // AutoDDL, section 5.
  EXPECT_NEAR(billions("autoddl-0.35b"), 0.35, 0.005);
  EXPECT_NEAR(billions("autoddl-5.8b"), 5.8, 0.06);
  EXPECT_NEAR(billions("autoddl-6.8b"), 6.8, 0.07);
  EXPECT_NEAR(billions("autoddl-16.5b"), 16.5, 0.05);
  EXPECT_NEAR(billions("autoddl-35.8b"), 35.8, 0.07);
  // OSDP, table 1: N&D 1.3 to 2.9, I&C 0.9 to 2.3; W&S reaches 4.0 with layers of 8192.
  EXPECT_NEAR(billions("mingpt-nd-96x1024"), 1.3, 0.05);
  EXPECT_NEAR(billions("mingpt-nd-96x1536"), 2.9, 0.05);
  EXPECT_NEAR(billions("mingpt-ic-24"), 0.9, 0.05);
  EXPECT_NEAR(billions("mingpt-ic-96"), 2.3, 0.05);
  EXPECT_NEAR(billions("mingpt-ws-4x8192"), 4.0, 0.06);  // 4.053
}

TEST(Models, LlamaParametersInClosedForm) {
  const std::int64_t h = 64, f = 96, v = 101, layers = 3, heads = 8, kv_heads = 2, head_dim = 8;
  const ModelGraph graph = build_model({.name = "llama",
                                        .layers = layers,
                                        .hidden = h,
                                        .heads = heads,
                                        .kv_heads = kv_heads,
                                        .ffn_hidden = f,
                                        .vocabulary = v,
                                        .sequence_length = 24});
  const std::int64_t block = h + h * (heads + 2 * kv_heads) * head_dim + h * h + h + 3 * h * f;
  EXPECT_EQ(graph.num_parameters(), 2 * v * h + layers * block + h);
}

// ---- operations

TEST(Models, GptProductsInClosedForm) {
  // 24 s h² L + 2 s² h L (causal attention, half of both products) + 2 s h V
  const double s = 1024, h = 768, layers = 12, v = 50257;
  EXPECT_EQ(product_flops(build_model({.name = "gpt2-small"})),
            24 * s * h * h * layers + 2 * s * s * h * layers + 2 * s * h * v);
}

TEST(Models, LlamaProductsInClosedForm) {
  const double s = 64, h = 64, f = 160, q = 64, kv = 32, layers = 2, v = 256;
  EXPECT_EQ(product_flops(build_model({.name = "llama-nano"})),
            layers * (2 * s * h * (q + 2 * kv) + 2 * s * q * h + 6 * s * h * f + 2 * s * s * q) + 2 * s * h * v);
}

TEST(Models, VggProductsAsPublished) {
  // Multiply-adds that are quoted for these networks at 224 pixels: 7.61, 11.31 and 15.47 G.
  const auto multiply_adds = [](const char* name) { return product_flops(build_model({.name = name})) / 2e9; };
  EXPECT_NEAR(multiply_adds("vgg11"), 7.61, 0.01);
  EXPECT_NEAR(multiply_adds("vgg13"), 11.31, 0.01);
  EXPECT_NEAR(multiply_adds("vgg16"), 15.47, 0.01);
}

TEST(Models, ResnetProductsAsPublished) {
  // Multiply-adds at 224 pixels: 1.8 and 4.1 G, in torchvision's table 1.81 and 4.09; at 32 pixels 0.56 and 1.30.
  const auto multiply_adds = [](const char* name) { return product_flops(build_model({.name = name})) / 2e9; };
  EXPECT_NEAR(multiply_adds("resnet18"), 1.81, 0.01);
  EXPECT_NEAR(multiply_adds("resnet50"), 4.09, 0.01);
  EXPECT_NEAR(multiply_adds("resnet18-cifar"), 0.56, 0.01);
  EXPECT_NEAR(multiply_adds("resnet50-cifar"), 1.30, 0.01);
}

TEST(Models, VitProductsAsPublished) {
  // Multiply-adds at 224 pixels: 17.6 G, in torchvision's table 17.56.
  EXPECT_NEAR(product_flops(build_model({.name = "vit-b16"})) / 2e9, 17.56, 0.01);
}

// ---- structure

TEST(Models, GptInOrder) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 1, .dropout = 0.1});
  std::vector<std::string> names;
  for (const Operator& op : graph.operators) names.push_back(op.name);
  EXPECT_THAT(names,
              ElementsAre("embedding", "embedding_dropout", "block[0].attn.norm", "block[0].attn.qkv",
                          "block[0].attn.core", "block[0].attn.proj", "block[0].attn.dropout", "block[0].attn.add",
                          "block[0].mlp.norm", "block[0].mlp.fc1", "block[0].mlp.gelu", "block[0].mlp.fc2",
                          "block[0].mlp.dropout", "block[0].mlp.add", "final_norm", "head", "loss"));
  EXPECT_EQ(operator_named(graph, "block[0].attn.core").attributes.real("dropout"), 0.1);
  EXPECT_EQ(graph.positions_per_sample, 64);
  // Without dropout there is no operator that does nothing.
  EXPECT_EQ(build_model({.name = "gpt-nano", .layers = 1}).operators.size(), names.size() - 3);
}

TEST(Models, ATiedHeadIsOneParameterOfTwoOperators) {
  const ModelGraph tied = build_model({.name = "gpt-nano"});
  EXPECT_EQ(operator_named(tied, "head").parameters[0], operator_named(tied, "embedding").parameters[0]);
  const ModelGraph own = build_model({.name = "gpt-nano", .tied_head = false});
  EXPECT_NE(operator_named(own, "head").parameters[0], operator_named(own, "embedding").parameters[0]);
  EXPECT_EQ(own.num_parameters() - tied.num_parameters(), 256 * 64);
}

TEST(Models, TransformerBlocksAreEqualAndInitialValuesAreGpt2s) {
  const ModelGraph graph = build_model({.name = "gpt2-small"});
  ASSERT_EQ(graph.blocks.size(), 12U);
  for (const Block& block : graph.blocks) {
    EXPECT_EQ(block.shape_class, 0);
    EXPECT_EQ(block.num_operators, 10);
  }
  EXPECT_EQ(parameter_named(graph, "block[3].mlp.fc1.weight").initializer.b, 0.02);
  EXPECT_DOUBLE_EQ(parameter_named(graph, "block[3].mlp.fc2.weight").initializer.b, 0.02 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(parameter_named(graph, "block[3].attn.proj.weight").initializer.b, 0.02 / std::sqrt(24.0));
  EXPECT_EQ(parameter_named(graph, "block[3].mlp.fc1.bias").initializer, (Initializer{}));
  EXPECT_EQ(parameter_named(graph, "final_norm.weight").initializer.a, 1.0);
  EXPECT_TRUE(parameter_named(graph, "embedding.positions").weight_decay);
  EXPECT_FALSE(parameter_named(graph, "block[3].mlp.fc1.bias").weight_decay);
  EXPECT_FALSE(parameter_named(graph, "final_norm.weight").weight_decay);
}

TEST(Models, LayersOfDifferentWidth) {
  const ModelGraph graph =
      build_model({.name = "gpt", .heads = 2, .vocabulary = 50, .sequence_length = 16, .widths = {32, 32, 64, 64, 32}});
  std::vector<int> classes;
  for (const Block& block : graph.blocks) classes.push_back(block.shape_class);
  // The first layer of a width resizes, so its class is its own.
  EXPECT_THAT(classes, ElementsAre(0, 0, 1, 2, 3));
  EXPECT_EQ(operator_named(graph, "block[2].resize").attributes.integer("in"), 32);
  EXPECT_EQ(operator_named(graph, "block[2].attn.core").attributes.integer("heads"), 4);
  EXPECT_EQ(operator_named(graph, "block[4].attn.core").attributes.integer("heads"), 2);
  EXPECT_EQ(operator_named(graph, "block[2].attn.core").attributes.integer("head_dim"), 16);
  EXPECT_EQ(build_model({.name = "mingpt-ic-24"}).blocks.size(), 24U);
  EXPECT_EQ(build_model({.name = "mingpt-ic-96"}).blocks.size(), 96U);
}

TEST(Models, LlamaWithGroupedHeads) {
  const ModelGraph graph = build_model({.name = "llama-nano"});
  const Operator& qkv = operator_named(graph, "block[0].attn.qkv");
  EXPECT_EQ(qkv.attributes.integer("out"), (4 + 2 * 2) * 16);
  EXPECT_EQ(qkv.parameters.size(), 1U);
  EXPECT_EQ(graph.tensors[index(operator_named(graph, "block[0].attn.core").outputs[0])].shape,
            (std::vector<std::int64_t>{64, 64}));
  EXPECT_NE(operator_named(graph, "head").parameters[0], operator_named(graph, "embedding").parameters[0]);
}

TEST(Models, LlamaWidthsFollowFromTheRatio) {
  const auto ffn = [](const char* name) {
    return operator_named(build_model({.name = name}), "block[0].mlp.down").attributes.integer("in");
  };
  EXPECT_EQ(ffn("llama-7b"), 10912);   // 10922.7
  EXPECT_EQ(ffn("llama-13b"), 13632);  // 13653.3
  EXPECT_EQ(ffn("llama-30b"), 16384);  // exactly
  EXPECT_EQ(ffn("smollm-135m"), 1536);
  EXPECT_EQ(build_model({.name = "smollm-135m"}).num_parameters(), 134515008) << "of the released model";
}

TEST(Models, VggStages) {
  const ModelGraph graph = build_model({.name = "vgg13"});
  ASSERT_EQ(graph.blocks.size(), 5U);
  const auto shape_after = [&](int block) {
    const Block& b = graph.blocks[index(block)];
    return graph.tensors[index(graph.operators[index(b.first_operator + b.num_operators - 1)].outputs[0])].shape;
  };
  EXPECT_THAT(shape_after(0), ElementsAre(112, 112, 64));
  EXPECT_THAT(shape_after(4), ElementsAre(7, 7, 512));
  EXPECT_EQ(operator_named(graph, "classifier.fc1").attributes.integer("in"), 25088);
  EXPECT_THAT(graph.tensors[index(operator_named(graph, "classifier.fc1").outputs[0])].shape, ElementsAre(4096));
  EXPECT_EQ(graph.positions_per_sample, 1);
  EXPECT_DOUBLE_EQ(parameter_named(graph, "block[1].conv[1].weight").initializer.b, std::sqrt(2.0 / (128 * 9)));
  EXPECT_EQ(parameter_named(graph, "classifier.fc1.weight").initializer.b, 0.01);
  EXPECT_EQ(operator_named(graph, "classifier.dropout1").attributes.real("probability"), 0.5);

  const ModelGraph small = build_model({.name = "vgg13-cifar"});
  EXPECT_EQ(operator_named(small, "classifier.fc1").attributes.integer("in"), 512);
  EXPECT_EQ(operator_named(small, "classifier.fc3").attributes.integer("out"), 10);
  EXPECT_DOUBLE_EQ(parameter_named(small, "classifier.fc1.weight").initializer.b, std::sqrt(2.0 / 512));
}

TEST(Models, ResnetStages) {
  const ModelGraph graph = build_model({.name = "resnet50"});
  ASSERT_EQ(graph.blocks.size(), 16U);
  const auto shape_of = [&](const ModelGraph& of, std::string_view name) {
    return of.tensors[index(operator_named(of, name).outputs[0])].shape;
  };
  EXPECT_THAT(shape_of(graph, "stem.relu"), ElementsAre(112, 112, 64));
  EXPECT_THAT(shape_of(graph, "stem.pool"), ElementsAre(56, 56, 64));
  EXPECT_THAT(shape_of(graph, "block[0].add"), ElementsAre(56, 56, 256));
  EXPECT_THAT(shape_of(graph, "block[15].add"), ElementsAre(7, 7, 2048));
  EXPECT_THAT(shape_of(graph, "pool"), ElementsAre(2048));
  // The stride of a bottleneck is its 3x3 convolution's, and the projection's beside it.
  EXPECT_EQ(operator_named(graph, "block[3].conv1").attributes.integer("stride"), 1);
  EXPECT_EQ(operator_named(graph, "block[3].conv2").attributes.integer("stride"), 2);
  EXPECT_EQ(operator_named(graph, "block[3].skip.conv").attributes.integer("stride"), 2);
  EXPECT_EQ(operator_named(graph, "block[3].conv2").parameters.size(), 1U) << "no bias";
  EXPECT_DOUBLE_EQ(parameter_named(graph, "block[3].conv2.weight").initializer.b, std::sqrt(2.0 / (128 * 9)));
  EXPECT_DOUBLE_EQ(parameter_named(graph, "block[3].conv3.weight").initializer.b, std::sqrt(2.0 / 512));
  EXPECT_EQ(parameter_named(graph, "block[3].norm2.weight").initializer.a, 1.0);
  EXPECT_FALSE(parameter_named(graph, "block[3].norm2.weight").weight_decay);
  EXPECT_EQ(parameter_named(graph, "head.weight").initializer.b, 1.0 / std::sqrt(2048.0));

  const ModelGraph small = build_model({.name = "resnet18-cifar"});
  ASSERT_EQ(small.blocks.size(), 8U);
  EXPECT_THAT(shape_of(small, "block[0].add"), ElementsAre(32, 32, 64));
  EXPECT_THAT(shape_of(small, "block[7].add"), ElementsAre(4, 4, 512));
  EXPECT_EQ(operator_named(small, "stem.conv").attributes.integer("kernel"), 3);
  // From 64 pixels on the form for ImageNet.
  EXPECT_THAT(shape_of(build_model({.name = "resnet18", .image_size = 64}), "stem.pool"), ElementsAre(16, 16, 64));
  EXPECT_THAT(shape_of(build_model({.name = "resnet18", .image_size = 63}), "block[0].add"), ElementsAre(63, 63, 64));
}

TEST(Models, VitInOrder) {
  const ModelGraph graph = build_model({.name = "vit-nano", .layers = 1, .dropout = 0.1});
  std::vector<std::string> names;
  for (const Operator& op : graph.operators) names.push_back(op.name);
  EXPECT_THAT(names, ElementsAre("patch", "embedding", "embedding_dropout", "block[0].attn.norm", "block[0].attn.qkv",
                                 "block[0].attn.core", "block[0].attn.proj", "block[0].attn.dropout",
                                 "block[0].attn.add", "block[0].mlp.norm", "block[0].mlp.fc1", "block[0].mlp.gelu",
                                 "block[0].mlp.dropout1", "block[0].mlp.fc2", "block[0].mlp.dropout2",
                                 "block[0].mlp.add", "final_norm", "class_row", "head", "loss"));
  EXPECT_EQ(build_model({.name = "vit-nano", .layers = 1}).operators.size(), names.size() - 4);
  EXPECT_EQ(graph.positions_per_sample, 1) << "an image";
}

TEST(Models, VitShapesAndInitialValues) {
  const ModelGraph graph = build_model({.name = "vit-b16"});
  const auto shape_of = [&](std::string_view name) {
    return graph.tensors[index(operator_named(graph, name).outputs[0])].shape;
  };
  ASSERT_EQ(graph.blocks.size(), 12U);
  EXPECT_THAT(shape_of("patch"), ElementsAre(14, 14, 768));
  EXPECT_THAT(shape_of("embedding"), ElementsAre(197, 768));
  EXPECT_THAT(shape_of("block[11].mlp.fc1"), ElementsAre(197, 3072));
  EXPECT_THAT(shape_of("class_row"), ElementsAre(768));
  EXPECT_THAT(shape_of("head"), ElementsAre(1000));
  const Operator& attention = operator_named(graph, "block[3].attn.core");
  EXPECT_EQ(attention.attributes.integer("causal"), 0);
  EXPECT_EQ(attention.attributes.integer("head_dim"), 64);
  EXPECT_EQ(operator_named(graph, "block[3].mlp.gelu").kind, OperatorKind::gelu_erf);
  EXPECT_EQ(operator_named(graph, "block[3].mlp.norm").attributes.real("epsilon"), 1e-6);
  EXPECT_EQ(operator_named(graph, "patch").attributes.integer("stride"), 16);
  EXPECT_EQ(operator_named(graph, "patch").attributes.integer("padding"), 0);
  EXPECT_DOUBLE_EQ(parameter_named(graph, "patch.weight").initializer.b, 1.0 / std::sqrt(768.0));
  EXPECT_EQ(parameter_named(graph, "embedding.token").initializer.b, 0.02);
  EXPECT_EQ(parameter_named(graph, "embedding.positions").initializer.b, 0.02);
  EXPECT_EQ(parameter_named(graph, "block[3].mlp.fc2.weight").initializer.b, 0.02);
  EXPECT_FALSE(parameter_named(graph, "embedding.token").weight_decay);
}

// ---- presets and options

TEST(Presets, AreUniqueAndComplete) {
  std::set<std::string> names;
  for (const Preset& preset : presets()) {
    EXPECT_TRUE(names.insert(preset.name).second) << preset.name;
    EXPECT_EQ(preset.options.name, preset.name);
    EXPECT_FALSE(preset.description.empty());
    EXPECT_FALSE(preset.source.empty());
    EXPECT_EQ(preset.description.find('\n'), std::string::npos);
    EXPECT_EQ(&find_preset(preset.name), &preset);
    EXPECT_EQ(build_model({.name = preset.name}).name, preset.name);
  }
  for (const char* name : {"gpt2-small", "gpt2-xl", "llama-7b", "llama-13b", "llama-30b", "vgg11", "vgg13", "vgg16",
                           "autoddl-6.8b", "oases-1024", "oases-12288", "mingpt-nd-48x1024"}) {
    EXPECT_TRUE(names.count(name) == 1) << name;
  }
}

TEST(Presets, OptionsGoOverThem) {
  const ResolvedModel model = resolve_model({.name = "gpt2-small", .layers = 2, .dropout = 0.25});
  EXPECT_EQ(model.family, "gpt");
  EXPECT_EQ(model.options.layers, 2);
  EXPECT_EQ(model.options.hidden, 768);
  EXPECT_EQ(model.options.dropout, 0.25);
  const ModelGraph graph = build_model({.name = "gpt2-small", .layers = 2, .sequence_length = 128});
  EXPECT_EQ(graph.blocks.size(), 2U);
  EXPECT_THAT(parameter_named(graph, "embedding.positions").shape, ElementsAre(128, 768));
}

TEST(Presets, AnUnknownNameListsTheKnownOnes) {
  EXPECT_THAT(error_of({.name = "gpt2-smal"}), HasSubstr("did you mean \"gpt2-small\"?"));
  EXPECT_THAT(error_of({.name = "gpt2-smal"}), HasSubstr("vgg13-cifar"));
  EXPECT_THAT(error_of({.name = ""}), HasSubstr("unknown model ``"));
}

TEST(Models, RefuseWhatTheyDoNotKnow) {
  EXPECT_THAT(error_of({.name = "gpt2-small", .kv_heads = 4}), HasSubstr("`gpt2-small`: kv_heads: no option"));
  EXPECT_THAT(error_of({.name = "vgg13", .heads = 4}), HasSubstr("heads: no option"));
  EXPECT_THAT(error_of({.name = "mlp-tiny", .layers = 4}), HasSubstr("accepted: widths | dropout"));
  EXPECT_THAT(error_of({.name = "llama-nano", .widths = {64}}), HasSubstr("widths: no option"));
  EXPECT_THAT(error_of({.name = "gpt"}), HasSubstr("layers: is missing"));
  EXPECT_THAT(error_of({.name = "gpt2-small", .heads = 7}), HasSubstr("7 heads do not divide hidden 768"));
  EXPECT_THAT(error_of({.name = "llama-nano", .kv_heads = 3}),
              HasSubstr("kv_heads: 3; accepted: a divisor of heads 4"));
  EXPECT_THAT(error_of({.name = "llama-nano", .heads = 64}), HasSubstr("heads of even size"));
  EXPECT_THAT(error_of({.name = "gpt2-small", .layers = 0}), HasSubstr("layers: 0; accepted: 1 to"));
  EXPECT_THAT(error_of({.name = "gpt2-small", .hidden = -768}), HasSubstr("hidden: -768"));
  EXPECT_THAT(error_of({.name = "gpt2-small", .dropout = 1.0}), HasSubstr("dropout: 1; accepted: 0 <= dropout < 1"));
  EXPECT_THAT(error_of({.name = "gpt2-small", .dropout = NAN}), HasSubstr("dropout: nan"));
  EXPECT_THAT(error_of({.name = "vgg13", .layers = 12}), HasSubstr("layers: 12; accepted: 11 | 13 | 16"));
  EXPECT_THAT(error_of({.name = "vgg13", .image_size = 100}), HasSubstr("image_size: 100; accepted: multiples of 32"));
  EXPECT_THAT(error_of({.name = "vgg13", .widths = {1, 2}}), HasSubstr("2 values"));
  EXPECT_THAT(error_of({.name = "resnet18", .layers = 34}), HasSubstr("layers: 34; accepted: 18 | 50"));
  EXPECT_THAT(error_of({.name = "resnet18", .hidden = 34}), HasSubstr("hidden: no option"));
  EXPECT_THAT(error_of({.name = "resnet18", .widths = {1, 2}}), HasSubstr("2 values; accepted: the channels of 4"));
  EXPECT_THAT(error_of({.name = "resnet18", .image_size = 4097}), HasSubstr("image_size: 4097; accepted: 1 to 4096"));
  EXPECT_THAT(error_of({.name = "vit-b16", .patch_size = 15}), HasSubstr("patch_size: 15 does not divide an image of"));
  EXPECT_THAT(error_of({.name = "vit-b16", .image_size = 100}), HasSubstr("16 does not divide an image of 100 pixels"));
  EXPECT_THAT(error_of({.name = "vit-b16", .heads = 7}), HasSubstr("heads: 7 do not divide hidden 768"));
  EXPECT_THAT(error_of({.name = "vit-b16", .image_size = 8192}), HasSubstr("image_size: 8192; accepted: 1 to 4096"));
  EXPECT_THAT(error_of({.name = "vit-b16", .vocabulary = 9}), HasSubstr("vocabulary: no option of this model"));
  EXPECT_THAT(error_of({.name = "resnet18", .patch_size = 4}), HasSubstr("patch_size: no option of this model"));
  EXPECT_THAT(error_of({.name = "mlp", .widths = {4}}), HasSubstr("1 values"));
  EXPECT_THAT(error_of({.name = "mlp", .widths = {4, 0, 2}}), HasSubstr("widths: 0; accepted: 1 to"));
  EXPECT_THAT(error_of({.name = "mingpt-ic-24", .layers = 4}), HasSubstr("widths: says the number of layers"));
  EXPECT_THAT(error_of({.name = "gpt", .heads = 2, .vocabulary = 50, .sequence_length = 8, .widths = {32, 40}}),
              HasSubstr("2 heads do not divide hidden 40"));
}

TEST(Models, NoneIsLargerThanWhatIsCounted) {
  const std::int64_t widest = std::int64_t{1} << 24;
  EXPECT_THAT(error_of({.name = "gpt-nano", .layers = widest}), HasSubstr("layers: 16777216; accepted: 1 to 16384"));
  EXPECT_THAT(error_of({.name = "gpt-nano", .layers = 3, .hidden = widest, .heads = 1, .ffn_hidden = widest}),
              HasSubstr("parameters; accepted: "));
}

}  // namespace
}  // namespace strata::test_models
