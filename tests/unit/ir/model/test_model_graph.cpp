/// @file
/// ModelGraph: every rule of verify is broken once, the text form reads back, and operations are counted by hand.

#include <gmock/gmock.h>

#include <functional>

#include "base/error.hpp"
#include "ir/model/block_shape.hpp"
#include "ir/model/model_graph.hpp"
#include "models/model.hpp"

namespace strata::test_model_graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::size_t index(int id) { return static_cast<std::size_t>(id); }

ModelGraph nano() { return build_model({.name = "gpt-nano"}); }

Operator& operator_named(ModelGraph& graph, std::string_view name) {
  for (Operator& op : graph.operators) {
    if (op.name == name) return op;
  }
  throw std::runtime_error("no operator " + std::string(name));
}

Parameter& parameter_named(ModelGraph& graph, std::string_view name) {
  for (Parameter& parameter : graph.parameters) {
    if (parameter.name == name) return parameter;
  }
  throw std::runtime_error("no parameter " + std::string(name));
}

std::string parse_error(std::string_view text) {
  try {
    parse_model_graph(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// ---- verify

struct BrokenRule {
  const char* name;
  std::function<void(ModelGraph&)> change;
  const char* message;  ///< part of what verify must say
};

class Verify : public ::testing::TestWithParam<BrokenRule> {};

TEST_P(Verify, NamesTheBrokenRule) {
  ModelGraph graph = build_model({.name = "llama-nano", .dropout = 0.1});
  ASSERT_NO_THROW(verify(graph));
  GetParam().change(graph);
  try {
    verify(graph);
    FAIL() << "verify accepted the graph";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
    EXPECT_THAT(error.what(), HasSubstr("llama-nano"));
  }
}

const std::vector<BrokenRule> broken_rules = {
    {"tensor_id", [](ModelGraph& g) { g.operators[3].inputs[0] = 100000; }, "input tensor 100000 does not exist"},
    {"parameter_id", [](ModelGraph& g) { g.operators[0].parameters[0] = -1; }, "parameter -1 does not exist"},
    {"order", [](ModelGraph& g) { std::swap(g.operators[2], g.operators[3]); }, "before any operator writes it"},
    {"two_producers", [](ModelGraph& g) { g.operators[3].outputs = g.operators[2].outputs; }, "already written"},
    {"no_producer",
     [](ModelGraph& g) {
       g.tensors.push_back({"extra", {4}, TensorRole::activation});
     },
     "no operator writes tensor"},
    {"unread_input",
     [](ModelGraph& g) {
       g.tensors.push_back({"extra", {4}, TensorRole::tokens});
     },
     "nothing reads"},
    {"unused_parameter",
     [](ModelGraph& g) {
       g.parameters.push_back({"extra", {4}, {}, false});
     },
     "no operator uses parameter `extra`"},
    {"tensor_name", [](ModelGraph& g) { g.tensors[1].name = g.tensors[0].name; }, "exists twice"},
    {"operator_name", [](ModelGraph& g) { g.operators[1].name = g.operators[0].name; }, "exists twice"},
    {"empty_name", [](ModelGraph& g) { g.parameters[1].name = ""; }, "is empty or has spaces"},
    {"weight_shape",
     [](ModelGraph& g) {
       parameter_named(g, "block[0].attn.qkv.weight").shape = {64, 128};
     },
     "`block[0].attn.qkv.weight` has shape [64, 128], must be [128, 64]"},
    {"linear_in", [](ModelGraph& g) { operator_named(g, "head").attributes.set("in", 65); }, "its last dim must be 65"},
    {"missing_attribute",
     [](ModelGraph& g) {
       operator_named(g, "head").attributes = {{"in", std::int64_t{64}}};
     },
     "`out` is missing"},
    {"attribute_type", [](ModelGraph& g) { operator_named(g, "head").attributes.set("out", 256.0); }, "wrong type"},
    {"unknown_attribute", [](ModelGraph& g) { operator_named(g, "head").attributes.set("scale", 2); },
     "unknown attribute `scale`"},
    {"zero_attribute", [](ModelGraph& g) { operator_named(g, "head").attributes.set("in", 0); }, "out of range"},
    {"kv_heads", [](ModelGraph& g) { operator_named(g, "block[1].attn.rotary").attributes.set("kv_heads", 3); },
     "over 3 kv_heads"},
    {"probability", [](ModelGraph& g) { operator_named(g, "embedding_dropout").attributes.set("probability", 1.0); },
     "[0, 1)"},
    {"output_shape",
     [](ModelGraph& g) {
       g.tensors[index(operator_named(g, "block[0].mlp.swiglu").outputs[0])].shape = {64, 1};
     },
     "`block[0].mlp.swiglu` has shape"},
    {"statistics_role",
     [](ModelGraph& g) { g.tensors[index(operator_named(g, "final_norm").outputs[1])].role = TensorRole::activation; },
     "must be statistic"},
    {"loss_role",
     [](ModelGraph& g) { g.tensors[index(operator_named(g, "loss").outputs[0])].role = TensorRole::activation; },
     "must be loss"},
    {"num_inputs", [](ModelGraph& g) { operator_named(g, "loss").inputs.pop_back(); }, "1 inputs, must be 2"},
    {"num_parameters", [](ModelGraph& g) { operator_named(g, "final_norm").parameters.push_back(0); },
     "2 parameters, must be 1 to 1"},
    {"block_beyond_end", [](ModelGraph& g) { g.blocks[1].num_operators = 1000; }, "lie within"},
    {"block_overlap", [](ModelGraph& g) { g.blocks[1].first_operator = g.blocks[0].first_operator; }, "do not overlap"},
    {"block_membership", [](ModelGraph& g) { g.operators[0].block = 0; }, "says block 0, the blocks say -1"},
    {"block_class", [](ModelGraph& g) { operator_named(g, "block[1].attn.core").attributes.set("dropout", 0.25); },
     "share shape class 0 but differ"},
    {"positions", [](ModelGraph& g) { g.positions_per_sample = 0; }, "positions_per_sample"},
    {"overflow",
     [](ModelGraph& g) {
       g.tensors[0].shape = {1LL << 40, 1LL << 40};
     },
     "has shape"},
};
INSTANTIATE_TEST_SUITE_P(ModelGraph, Verify, ::testing::ValuesIn(broken_rules),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ModelGraph, BlocksOfOneClassMayDifferInInitialValuesButNotInWiring) {
  ModelGraph graph = nano();
  EXPECT_TRUE(same_shape(graph, graph.blocks[0], graph.blocks[1]));
  parameter_named(graph, "block[1].mlp.fc1.weight").initializer = {};
  EXPECT_NO_THROW(verify(graph));
  // The second addition reads the first one's result; reading the branch twice is another function of equal shapes.
  Operator& add = operator_named(graph, "block[1].mlp.add");
  add.inputs[0] = add.inputs[1];
  EXPECT_FALSE(same_shape(graph, graph.blocks[0], graph.blocks[1]));
}

/// Of operators that LLaMA has not.
class VerifyVit : public ::testing::TestWithParam<BrokenRule> {};

TEST_P(VerifyVit, NamesTheBrokenRule) {
  ModelGraph graph = build_model({.name = "vit-nano"});
  GetParam().change(graph);
  try {
    verify(graph);
    FAIL() << "verify accepted the graph";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

const std::vector<BrokenRule> broken_vit_rules = {
    {"tokens",
     [](ModelGraph& g) {
       g.tensors[index(operator_named(g, "embedding").outputs[0])].shape = {16, 32};
     },
     "`embedding` has shape [16, 32], must be [17, 32]"},
    {"token", [](ModelGraph& g) { parameter_named(g, "embedding.token").shape = {31}; },
     "`embedding.token` has shape [31], must be [32]"},
    {"positions",
     [](ModelGraph& g) {
       parameter_named(g, "embedding.positions").shape = {16, 32};
     },
     "`embedding.positions` has shape [16, 32], must be [17, 32]"},
    {"image_height", [](ModelGraph& g) { operator_named(g, "embedding").attributes.set("height", 5); },
     "must be [5, 4, 32]"},
    {"row", [](ModelGraph& g) { operator_named(g, "class_row").attributes.set("width", 31); },
     "its last dim must be 31"},
};
INSTANTIATE_TEST_SUITE_P(ModelGraph, VerifyVit, ::testing::ValuesIn(broken_vit_rules),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- what the backward pass reads

TEST(ModelGraph, SavedForBackward) {
  ModelGraph graph = build_model({.name = "llama-nano", .dropout = 0.1});
  const auto saved = [&](std::string_view name) {
    std::vector<std::string> names;
    for (const int t : saved_for_backward(operator_named(graph, name))) names.push_back(graph.tensors[index(t)].name);
    return names;
  };
  EXPECT_THAT(saved("embedding"), ElementsAre("tokens"));
  EXPECT_THAT(saved("embedding_dropout"), ElementsAre());
  EXPECT_THAT(saved("block[0].attn.norm"), ElementsAre("embedding_dropout", "block[0].attn.norm.statistics"));
  EXPECT_THAT(saved("block[0].attn.qkv"), ElementsAre("block[0].attn.norm"));
  EXPECT_THAT(saved("block[0].attn.rotary"), ElementsAre());
  EXPECT_THAT(saved("block[0].attn.core"),
              ElementsAre("block[0].attn.rotary", "block[0].attn.core", "block[0].attn.core.statistics"));
  EXPECT_THAT(saved("block[0].attn.add"), ElementsAre());
  EXPECT_THAT(saved("block[0].mlp.swiglu"), ElementsAre("block[0].mlp.gate_up"));
  EXPECT_THAT(saved("loss"), ElementsAre("head"));

  graph = build_model({.name = "vgg-nano"});
  EXPECT_THAT(saved("block[0].conv[0]"), ElementsAre("image"));
  EXPECT_THAT(saved("block[0].relu[0]"), ElementsAre("block[0].relu[0]"));
  EXPECT_THAT(saved("block[0].pool"), ElementsAre("block[0].pool.indices"));

  graph = build_model({.name = "vit-nano"});
  EXPECT_THAT(saved("embedding"), ElementsAre());
  EXPECT_THAT(saved("block[0].mlp.gelu"), ElementsAre("block[0].mlp.fc1"));
  EXPECT_THAT(saved("class_row"), ElementsAre());
}

// ---- operations

TEST(ModelGraph, OperationsCountedByHand) {
  ModelGraph graph = nano();  // s 64, h 64, 4 heads of 16, f 256
  const auto forward = [&](std::string_view name) { return forward_flops(graph, operator_named(graph, name), 3); };
  const auto backward = [&](std::string_view name) { return backward_flops(graph, operator_named(graph, name), 3); };
  EXPECT_EQ(forward("block[0].attn.qkv"), 3.0 * 2 * 64 * 64 * 192);
  EXPECT_EQ(backward("block[0].attn.qkv"), 3.0 * 4 * 64 * 64 * 192);
  EXPECT_EQ(forward("block[0].attn.core"), 3.0 * 2 * 2 * 64 * 64 * 64 / 2);  // Q Kᵀ and P V, half of each
  EXPECT_EQ(backward("block[0].attn.core"), 3.0 * 4 * 2 * 64 * 64 * 64 / 2);
  EXPECT_EQ(forward("block[1].mlp.gelu"), 3.0 * 9 * 64 * 256);
  EXPECT_EQ(forward("embedding"), 3.0 * 64 * 64);       // adding the position
  EXPECT_EQ(backward("embedding"), 3.0 * 2 * 64 * 64);  // into the table and the positions
  EXPECT_EQ(backward("block[0].mlp.add"), 0.0);

  operator_named(graph, "block[0].attn.core").attributes.set("causal", 0);
  EXPECT_EQ(forward("block[0].attn.core"), 3.0 * 2 * 2 * 64 * 64 * 64);
}

TEST(ModelGraph, OperationsAroundAClassTokenCountedByHand) {
  ModelGraph graph = build_model({.name = "vit-nano"});  // 16 patches, h 32, f 128
  const auto forward = [&](std::string_view name) { return forward_flops(graph, operator_named(graph, name), 3); };
  const auto backward = [&](std::string_view name) { return backward_flops(graph, operator_named(graph, name), 3); };
  EXPECT_EQ(forward("embedding"), 3.0 * 17 * 32);         // adding the positions
  EXPECT_EQ(backward("embedding"), 3.0 * (17 + 1) * 32);  // into the positions and the token
  EXPECT_EQ(forward("class_row"), 0.0);
  EXPECT_EQ(backward("class_row"), 0.0);
  EXPECT_EQ(forward("block[0].mlp.gelu"), 3.0 * 4 * 17 * 128);
  EXPECT_EQ(forward("block[0].attn.core"), 3.0 * 2 * 2 * 17 * 17 * 32);  // every position sees all
}

TEST(ModelGraph, NothingIsCountedForTheGradientOfAnImage) {
  ModelGraph graph = build_model({.name = "vgg-nano"});
  const Operator& first = operator_named(graph, "block[0].conv[0]");
  EXPECT_EQ(forward_flops(graph, first, 2), 2.0 * 2 * 32 * 32 * 8 * 27);
  EXPECT_EQ(backward_flops(graph, first, 2), 2.0 * 2 * 32 * 32 * 8 * 27);
  const Operator& second = operator_named(graph, "block[1].conv[0]");
  EXPECT_EQ(backward_flops(graph, second, 2), 2.0 * 2 * 2 * 16 * 16 * 16 * 72);
  const Operator& pool = operator_named(graph, "block[0].pool");
  EXPECT_EQ(forward_flops(graph, pool, 1), 3.0 * 16 * 16 * 8);  // three comparisons a window
}

// ---- text

class EveryPreset : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryPreset, IsValidAndReadsBack) {
  const ModelGraph graph = build_model({.name = GetParam()});
  verify(graph);
  const std::string text = to_text(graph);
  const ModelGraph back = parse_model_graph(text);
  EXPECT_TRUE(back == graph);
  EXPECT_EQ(to_text(back), text);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(ModelGraph, EveryPreset, ::testing::ValuesIn(preset_names()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name) c = (c == '-' || c == '.') ? '_' : c;
  return name;
});

constexpr const char* small_text = R"(# one dense layer
model tiny positions_per_sample=1
tensor image image [2,2,3]
tensor label targets []

tensor head activation [5]
tensor loss loss []
parameter head.weight [5,12] uniform(-0.5,0.5) decay
parameter head.bias [5] constant(0)
operator head linear image -> head with head.weight,head.bias : in=12 out=5   # a comment
operator loss cross_entropy head,label -> loss : classes=5
)";

std::string changed(std::string_view from, std::string_view to) {
  std::string text = small_text;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ModelGraphText, ReadsCommentsBlankLinesAndScalars) {
  const ModelGraph graph = parse_model_graph(small_text);
  EXPECT_EQ(graph.name, "tiny");
  EXPECT_EQ(graph.num_parameters(), 65);
  EXPECT_TRUE(graph.tensors[1].shape.empty());
  EXPECT_EQ(graph.parameters[0].initializer, (Initializer{Initializer::Kind::uniform, -0.5, 0.5}));
  EXPECT_TRUE(graph.parameters[0].weight_decay);
  EXPECT_FALSE(graph.parameters[1].weight_decay);
  EXPECT_TRUE(parse_model_graph(to_text(graph)) == graph);
}

TEST(ModelGraphText, ErrorsNameTheLineAndWhatIsAccepted) {
  EXPECT_THAT(parse_error(""), HasSubstr("empty"));
  EXPECT_THAT(parse_error("tensor image image [2]\n"), HasSubstr("line 1: the first line must be `model"));
  EXPECT_THAT(parse_error(changed("image image", "image picture")),
              HasSubstr("line 3: unknown tensor role `picture`; accepted: activation, statistic"));
  EXPECT_THAT(parse_error(changed("[2,2,3]", "2,2,3")), HasSubstr("line 3: malformed shape"));
  EXPECT_THAT(parse_error(changed("[2,2,3]", "[2,x,3]")), HasSubstr("line 3: `x` is not a number"));
  EXPECT_THAT(parse_error(changed("tensor head activation", "tensor label activation")),
              HasSubstr("line 6: `label` is defined twice"));
  EXPECT_THAT(parse_error(changed("uniform(-0.5,0.5)", "uniform(1)")), HasSubstr("line 8: malformed initializer"));
  EXPECT_THAT(parse_error(changed("head linear", "head dense")), HasSubstr("line 10: unknown operator kind `dense`"));
  EXPECT_THAT(parse_error(changed("image -> head", "picture -> head")),
              HasSubstr("line 10: no tensor `picture` on a line above"));
  EXPECT_THAT(parse_error(changed("-> head with", "head with")), HasSubstr("line 10: `->` is missing before `head`"));
  EXPECT_THAT(parse_error(changed("in=12", "in")), HasSubstr("line 10: malformed attribute `in`"));
  EXPECT_THAT(parse_error(changed("decay", "decay twice")), HasSubstr("line 8: unexpected `twice`"));
  EXPECT_THAT(parse_error(changed("tensor loss", "tensors loss")), HasSubstr("line 7: unknown statement `tensors`"));
  EXPECT_THAT(parse_error(changed("=1\n", "=one\n")), HasSubstr("line 2: `one` is not a number"));
  EXPECT_THAT(parse_error(std::string(small_text) + "block b first=1 operators=-4 class=0\n"),
              HasSubstr("line 12: operators=-4 out of range"));
  EXPECT_THAT(parse_error(std::string(small_text) + "block b first=1 operators=4 class=0\n"), HasSubstr("lie within"));
}

TEST(ModelGraphText, ATextThatBreaksARuleIsTheUsersMistake) {
  EXPECT_THAT(parse_error(changed("in=12", "in=13")), HasSubstr("its size must be in = 13"));
}

TEST(ModelGraph, NamesReadBack) {
  for (int i = 0; i <= static_cast<int>(OperatorKind::cross_entropy); ++i) {
    const auto kind = static_cast<OperatorKind>(i);
    EXPECT_EQ(parse_operator_kind(to_string(kind)), kind);
  }
  for (int i = 0; i <= static_cast<int>(TensorRole::loss); ++i) {
    const auto role = static_cast<TensorRole>(i);
    EXPECT_EQ(parse_tensor_role(to_string(role)), role);
  }
}

}  // namespace
}  // namespace strata::test_model_graph
