/// @file
/// Plans: patterns, resolve, rank coordinates, verify's rules, and the text form, by hand and by randomised round trip.

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "base/error.hpp"
#include "ir/plan/plan.hpp"
#include "support/refusal.hpp"

namespace strata::test_plan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// embedding, num_blocks × (attn.qkv, mlp.fc1, mlp.fc2), head; the head's weight is the embedding's.
ModelGraph small_graph(int num_blocks) {
  ModelGraph graph;
  graph.name = "small";
  const auto add = [&](const std::string& name, std::vector<int> parameters) {
    Operator op;
    op.name = name;
    op.parameters = std::move(parameters);
    graph.operators.push_back(op);
  };
  const auto parameter = [&](const std::string& name) {
    graph.parameters.push_back({name, {4, 4}, {}, true});
    return static_cast<int>(graph.parameters.size()) - 1;
  };
  const int table = parameter("embedding.table");
  add("embedding", {table});
  for (int i = 0; i < num_blocks; ++i) {
    for (const char* part : {"attn.qkv", "mlp.fc1", "mlp.fc2"}) {
      const std::string name = "block[" + std::to_string(i) + "]." + part;
      add(name, {parameter(name + ".weight")});
    }
  }
  add("head", {table});
  return graph;
}

Plan data_plan(int nodes, int ranks_per_node) {
  Plan plan;
  plan.strategy = "ddp";
  plan.mesh = {nodes, ranks_per_node, {{"data", nodes * ranks_per_node}}, "block"};
  plan.global_batch = std::int64_t{12} * nodes * ranks_per_node;
  return plan;
}

OperatorRule rule(const std::string& match) {
  OperatorRule made;
  made.match = match;
  return made;
}

TEST(PlanPattern, StarMatchesAnyText) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*", "block[3].mlp.fc1"));
  EXPECT_TRUE(matches("block*fc1", "block[3].mlp.fc1"));
  EXPECT_TRUE(matches("*.mlp.*", "block[3].mlp.fc1"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matches("a*b*c", "aXbYbZ"));
  EXPECT_FALSE(matches("conv*", "fc1.conv"));
  EXPECT_TRUE(matches("**", "x"));
}

TEST(PlanPattern, WithoutStarIsWhole) {
  EXPECT_TRUE(matches("head", "head"));
  EXPECT_FALSE(matches("head", "heads"));
  EXPECT_FALSE(matches("head", "hea"));
  EXPECT_FALSE(matches("", "head"));
  EXPECT_TRUE(matches("", ""));
}

TEST(PlanPattern, RangeIsInclusiveAndNumeric) {
  EXPECT_FALSE(matches("block[2..47].*", "block[1].fc1"));
  EXPECT_TRUE(matches("block[2..47].*", "block[2].fc1"));
  EXPECT_TRUE(matches("block[2..47].*", "block[10].fc1"));
  EXPECT_TRUE(matches("block[2..47].*", "block[47].fc1"));
  EXPECT_FALSE(matches("block[2..47].*", "block[48].fc1"));
  EXPECT_FALSE(matches("block[2..47].*", "block[4x].fc1"));
  EXPECT_FALSE(matches("block[2..47]", "block[3].fc1"));
  EXPECT_TRUE(matches("block[3].fc1", "block[3].fc1"));
  EXPECT_FALSE(matches("block[3].fc1", "block[33].fc1"));
  EXPECT_FALSE(matches("block[5..2].fc1", "block[3].fc1"));
}

TEST(PlanPattern, RangeAfterStarIsFoundWhereverItStands) {
  EXPECT_TRUE(matches("*[2..3].fc1", "a[1].b[2].fc1"));
  EXPECT_TRUE(matches("*[1..1]*[2..3]*", "a[1].b[2].fc1"));
  EXPECT_FALSE(matches("*[2..3]*[1..1]*", "a[1].b[2].fc1"));
}

TEST(PlanResolve, LaterRulesWinFieldByField) {
  Plan plan = data_plan(1, 4);
  plan.recompute = Recompute::block;
  plan.operators = {rule("*"), rule("block[1..2].mlp.*"), rule("block[2].mlp.fc1")};
  plan.operators[0].algorithm = MatmulAlgorithm::ring;
  plan.operators[1].state = StateFactors{{4, 1}, {4, 1}, {4, 1}, std::nullopt, false};
  plan.operators[1].recompute = Recompute::none;
  plan.operators[2].slices = 2;
  plan.operators[2].slice_state = {"zdp", "dp"};
  const ModelGraph graph = small_graph(3);
  const auto decisions = resolve(plan, graph);
  ASSERT_EQ(decisions.size(), graph.operators.size());
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    const std::string& name = graph.operators[i].name;
    const bool sharded = name.find(".mlp.") != std::string::npos && name.find("[0]") == std::string::npos;
    EXPECT_EQ(decisions[i].algorithm, MatmulAlgorithm::ring) << name;
    EXPECT_EQ(decisions[i].state.p.in_node, sharded ? 4 : 1) << name;
    EXPECT_EQ(decisions[i].recompute, sharded ? Recompute::none : Recompute::block) << name;
    EXPECT_EQ(decisions[i].slices, name == "block[2].mlp.fc1" ? 2 : 0) << name;
  }
  EXPECT_THAT(decisions[8].slice_state, ElementsAre("zdp", "dp"));
}

TEST(PlanResolve, OfTwoRulesThatSayTheSameFieldTheLaterOneDecides) {
  Plan plan = data_plan(1, 4);
  plan.operators = {rule("*"), rule("block[1].*"), rule("block[1].mlp.*")};
  const auto all_over = [](int ranks) { return StateFactors{{ranks, 1}, {ranks, 1}, {ranks, 1}, std::nullopt, false}; };
  for (int r = 0; r < 3; ++r) {
    OperatorRule& of = plan.operators[static_cast<std::size_t>(r)];
    of.state = all_over(4 >> r);
    of.algorithm = r == 1 ? MatmulAlgorithm::ring : MatmulAlgorithm::summa;
    of.recompute = r == 1 ? Recompute::none : Recompute::block;
    of.layout = Layout{.p0 = {1 << r, 1}, .p1 = {4 >> r, 1}, .p2 = {}};
    of.slices = 2 + r;
  }
  const ModelGraph graph = small_graph(2);
  const auto decisions = resolve(plan, graph);
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    const std::string& name = graph.operators[i].name;
    const std::size_t last = !name.starts_with("block[1].") ? 0 : name.find(".mlp.") == std::string::npos ? 1 : 2;
    const OperatorRule& of = plan.operators[last];
    EXPECT_EQ(decisions[i].state, of.state) << name;
    EXPECT_EQ(decisions[i].algorithm, of.algorithm) << name;
    EXPECT_EQ(decisions[i].recompute, of.recompute) << name;
    EXPECT_EQ(decisions[i].layout, of.layout) << name;
    EXPECT_EQ(decisions[i].slices, of.slices) << name;
  }
}

TEST(PlanResolve, APatternThatMatchesNothingNamesTheNearest) {
  Plan plan = data_plan(1, 1);
  plan.operators = {rule("*"), rule("block[1].mpl.fc1")};
  EXPECT_THAT(user_error([&] { resolve(plan, small_graph(2)); }),
              AllOf(HasSubstr("operators[1].match"), HasSubstr("\"block[1].mpl.fc1\" matches no operator of small"),
                    HasSubstr("nearest: block[1].mlp.fc1")));
}

TEST(PlanMesh, CoordinatesAreDigitsWithTheLastAxisFastest) {
  const Mesh mesh{2, 12, {{"data", 4}, {"tensor", 2}, {"stage", 3}}, "block"};
  std::set<std::vector<int>> seen;
  for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
    const int d = coordinate(mesh, "data", rank), t = coordinate(mesh, "tensor", rank),
              s = coordinate(mesh, "stage", rank);
    EXPECT_EQ((d * 2 + t) * 3 + s, rank);
    EXPECT_TRUE(seen.insert({d, t, s}).second);
    EXPECT_EQ(coordinate(mesh, "p0", rank), 0);
    EXPECT_THAT(group_along(mesh, "p0", rank), ElementsAre(rank));
  }
  EXPECT_EQ(axis_size(mesh, "data"), 4);
  EXPECT_EQ(axis_size(mesh, "p0"), 1);
}

TEST(PlanMesh, GroupsShareAllOtherCoordinates) {
  const Mesh mesh{2, 12, {{"data", 4}, {"tensor", 2}, {"stage", 3}}, "block"};
  EXPECT_THAT(group_along(mesh, "data", 0), ElementsAre(0, 6, 12, 18));
  EXPECT_THAT(group_along(mesh, "tensor", 23), ElementsAre(20, 23));
  EXPECT_THAT(group_along(mesh, "stage", 7), ElementsAre(6, 7, 8));
  for (const MeshAxis& axis : mesh.axes) {
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
      const std::vector<int> group = group_along(mesh, axis.name, rank);
      ASSERT_EQ(static_cast<int>(group.size()), axis.size);
      EXPECT_EQ(group[static_cast<std::size_t>(coordinate(mesh, axis.name, rank))], rank);
      for (int i = 0; i < axis.size; ++i) {
        const int peer = group[static_cast<std::size_t>(i)];
        EXPECT_EQ(coordinate(mesh, axis.name, peer), i);
        EXPECT_EQ(group_along(mesh, axis.name, peer), group);
      }
    }
  }
}

TEST(PlanFactor, TextForm) {
  EXPECT_EQ(parse_factor("4x2"), (Factor{4, 2}));
  EXPECT_EQ(to_string(Factor{16, 1}), "16x1");
  for (const char* bad :
       {"", "4", "x", "4x", "x2", "0x1", "4x0", "-4x2", "4x-2", "4x2x1", "4 x 2", "4X2", "99999999999x1"}) {
    EXPECT_THAT(user_error([&] { parse_factor(bad); }), HasSubstr("is not a factor")) << bad;
  }
}

/// One way to break a good plan, and what verify must say.
struct Breakage {
  const char* expected;
  void (*apply)(Plan&);
};

TEST(PlanVerify, NamesTheKeyAndTheNumbers) {
  const ModelGraph graph = small_graph(2);
  Plan good = data_plan(2, 4);
  good.operators = {rule("*")};
  good.operators[0].state = StateFactors{{4, 1}, {4, 1}, {4, 2}, Factor{2, 1}, false};
  EXPECT_NO_THROW(verify(good, graph));

  const Breakage breakages[] = {
      {"mesh.axes: data 4 = 4, but 2 nodes x 4 ranks = 8", [](Plan& p) { p.mesh.axes[0].size = 4; }},
      {"mesh.axes.dat: unknown word \"dat\"; did you mean \"data\"?", [](Plan& p) { p.mesh.axes[0].name = "dat"; }},
      {"mesh.axes.data: the axis is named twice",
       [](Plan& p) {
         p.mesh.axes = {{"data", 2}, {"data", 4}};
       }},
      {"mesh.axes: no axes for 8 ranks, and no rule gives a layout to embedding",
       [](Plan& p) {
         p.mesh.axes = {};
         p.operators[0].state.reset();
       }},
      {"mesh.nodes: 0 is out of range", [](Plan& p) { p.mesh.nodes = 0; }},
      {"mesh.placement: unknown word \"leaf_first\"; did you mean \"leaf-first\"?",
       [](Plan& p) { p.mesh.placement = "leaf_first"; }},
      {"mesh.node_order: [] is no permutation of the 2 nodes 0 … 1, which placement \"leaf-first\" needs",
       [](Plan& p) { p.mesh.placement = "leaf-first"; }},
      {"mesh.node_order: [1, 1] is no permutation of the 2 nodes",
       [](Plan& p) {
         p.mesh.placement = "leaf-first";
         p.mesh.node_order = {1, 1};
       }},
      {"mesh.node_order: needs mesh.placement \"leaf-first\", which is \"block\"",
       [](Plan& p) {
         p.mesh.node_order = {1, 0};
       }},
      {"quantization.weights: unknown word \"int4\"; did you mean \"int8\"?; accepted: none | int8",
       [](Plan& p) { p.quantization.weights = "int4"; }},
      {"quantization.gradients: unknown word \"fp8\"", [](Plan& p) { p.quantization.gradients = "fp8"; }},
      {"quantization.block: 100 is out of range; accepted: multiples of 16",
       [](Plan& p) { p.quantization.block = 100; }},
      {"batch.global: 96 samples are not divisible by 5 micro-batches", [](Plan& p) { p.schedule.micro_batches = 5; }},
      {"batch.global: 0 is out of range", [](Plan& p) { p.global_batch = 0; }},
      {"schedule.sub_batches: 0 is out of range", [](Plan& p) { p.schedule.sub_batches = 0; }},
      {"schedule.sub_batches: 4 of a micro-batch of 24 samples, of which 8 groups of ranks have 3 each; accepted: 3 at "
       "most",
       [](Plan& p) {
         p.schedule.micro_batches = 4;
         p.schedule.sub_batches = 4;
       }},
      {"schedule.fresh: \"v2\" needs schedule.kind \"cyclic\", which is \"simultaneous\"",
       [](Plan& p) { p.schedule.fresh = "v2"; }},
      {"schedule.sum: \"after\" needs schedule.kind \"cyclic\"", [](Plan& p) { p.schedule.sum = "after"; }},
      {"schedule.spread: \"direct\" needs", [](Plan& p) { p.schedule.spread = "direct"; }},
      {"schedule.spread: unknown word \"relays\"; did you mean", [](Plan& p) { p.schedule.spread = "relays"; }},
      {"schedule.shift: \"paced\" needs schedule.kind \"cyclic\"", [](Plan& p) { p.schedule.shift = "paced"; }},
      {"schedule.shift: unknown word \"pace\"; did you mean \"paced\"?; accepted: free | paced | begun",
       [](Plan& p) { p.schedule.shift = "pace"; }},
      {"schedule.optimizer: \"first_user\" needs", [](Plan& p) { p.schedule.updater = "first_user"; }},
      {"schedule.optimizer: unknown word \"first\"; accepted: last | first_user",
       [](Plan& p) { p.schedule.updater = "first"; }},
      {"schedule.spare_stages: \"0\" needs", [](Plan& p) { p.schedule.spare_stages = 0; }},
      {"schedule.spare_stages: -1 is out of range", [](Plan& p) { p.schedule.spare_stages = -1; }},
      {"schedule.micro_batches: 1 micro-batches are not divisible by mesh.axes.micro_batch = 8",
       [](Plan& p) {
         p.mesh.axes = {{"micro_batch", 8}};
       }},
      {"schedule.fresh: \"01 1\"; accepted: none | v2, or a table of 1 rows, one a micro-batch, of 1 digits 0 or 1, "
       "one "
       "a stage",
       [](Plan& p) { p.schedule.fresh = "01 1"; }},
      {"stages.count: 9 stages, but the model has 8 operators", [](Plan& p) { p.stages.count = 9; }},
      {"stages.count: 3 stages are not divisible by mesh.axes.stage = 2",
       [](Plan& p) {
         p.mesh.axes = {{"data", 4}, {"stage", 2}};
         p.stages.count = 3;
       }},
      {"stages.cut_by: unknown word \"flop\"", [](Plan& p) { p.stages.cut_by = "flop"; }},
      {"stages.cut_at: unknown word \"layer\"", [](Plan& p) { p.stages.cut_at = "layer"; }},
      {"stages.begins: 1 operators; accepted: 0, one for each of the 1 stages but the first",
       [](Plan& p) { p.stages.begins = {"loss"}; }},
      {"operators[0].state.p: 3x1 = 3 ranks do not divide the 8 data ranks",
       [](Plan& p) {
         p.operators[0].state->p = {3, 1};
       }},
      {"operators[0].state.g: 8x1: 8 ranks in a node do not divide ranks_per_node = 4",
       [](Plan& p) {
         p.operators[0].state->g = {8, 1};
       }},
      {"operators[0].state.os: 1x8: 8 nodes do not divide nodes = 2",
       [](Plan& p) {
         p.operators[0].state->os = {1, 8};
       }},
      {"operators[0].state.p_backward: 3x1",
       [](Plan& p) {
         p.operators[0].state->p_backward = Factor{3, 1};
       }},
      {"operators[0].layout: p0 2x1 x p1 2x1 x p2 1x1 = 4, but a stage has 8 ranks",
       [](Plan& p) {
         p.operators[0].layout = Layout{{2, 1}, {2, 1}, {1, 1}};
       }},
      {"operators[0].slice_state: unknown word \"fdp\"; did you mean \"dp\"?",
       [](Plan& p) { p.operators[0].slice_state = {"fdp"}; }},
      {"operators[0].directions: 3; accepted: 1 or 2",
       [](Plan& p) {
         p.operators[0].algorithm = MatmulAlgorithm::ring;
         p.operators[0].directions = 3;
       }},
      {"directions = 2 with algorithm = local; accepted: with algorithm = ring",
       [](Plan& p) { p.operators[0].directions = 2; }},
      {"slice_state has 1 entries for 0 slices", [](Plan& p) { p.operators[0].slice_state = {"dp"}; }},
      {"operators[0].slices: -1 is out of range", [](Plan& p) { p.operators[0].slices = -1; }},
      {"embedding.table is shared by embedding and head, whose rules give it different states",
       [](Plan& p) {
         p.operators.push_back(p.operators[0]);
         p.operators[1].match = "head";
         p.operators[1].state->p = {1, 1};
       }},
      {"overlap.bucket_bytes: -1", [](Plan& p) { p.overlap.bucket_bytes = -1; }},
      {"overlap.spread_bytes: -1", [](Plan& p) { p.overlap.spread_bytes = -1; }},
      {"overlap.all_reduce: unknown word \"forward\"", [](Plan& p) { p.overlap.all_reduce = "forward"; }},
      {"overlap.gather: unknown word", [](Plan& p) { p.overlap.gather = "yes"; }},
      {"overlap.gather_backward: unknown word", [](Plan& p) { p.overlap.gather_backward = "yes"; }},
      {"overlap.reduce_scatter: unknown word", [](Plan& p) { p.overlap.reduce_scatter = "yes"; }},
      {"overlap.layout: unknown word", [](Plan& p) { p.overlap.layout = "yes"; }},
      {"overlap.broadcast: unknown word", [](Plan& p) { p.overlap.broadcast = "yes"; }},
      {"overlap.replica_stream: unknown word \"both\"", [](Plan& p) { p.overlap.replica_stream = "both"; }},
      {"overlap.update: unknown word", [](Plan& p) { p.overlap.update = "yes"; }},
      {"overlap.update: backward with optimizer.clip_norm = 0.5",
       [](Plan& p) {
         p.overlap.update = "backward";
         p.optimizer.clip_norm = 0.5;
       }},
      {"optimizer.kind: unknown word \"adamW\"; did you mean \"adamw\"?", [](Plan& p) { p.optimizer.kind = "adamW"; }},
      {"optimizer.sharding: unknown word", [](Plan& p) { p.optimizer.sharding = "tensor"; }},
      {"optimizer.spread: unknown word", [](Plan& p) { p.optimizer.spread = "gather"; }},
      {"optimizer.gradients: unknown word", [](Plan& p) { p.optimizer.gradients = "reduce"; }},
      {"gathered_after_recompute: unknown word", [](Plan& p) { p.gathered_after_recompute = "drop"; }},
      {"optimizer.beta2: 1 is out of range; accepted: >= 0 and < 1", [](Plan& p) { p.optimizer.beta2 = 1.0; }},
      {"optimizer.clip_norm: nan", [](Plan& p) { p.optimizer.clip_norm = std::nan(""); }},
      {"dtypes.compute: unknown word \"u8\"; accepted: f32 | bf16", [](Plan& p) { p.dtypes.compute = DType::u8; }},
      {"device_capacity_bytes: -1", [](Plan& p) { p.device_capacity_bytes = -1; }},
      {"seed: 9223372036854775808 is out of range", [](Plan& p) { p.seed = std::uint64_t{1} << 63U; }},
  };
  for (const Breakage& breakage : breakages) {
    Plan bad = good;
    breakage.apply(bad);
    EXPECT_THAT(user_error([&] { verify(bad, graph); }), AllOf(StartsWith("plan: "), HasSubstr(breakage.expected)));
  }
}

TEST(PlanVerify, LayoutsMayReplaceAxes) {
  Plan plan;
  plan.strategy = "autoddl";
  plan.mesh = {2, 8, {}, "block"};
  plan.global_batch = 16;
  plan.operators = {rule("*"), rule("block[*].mlp.fc1")};
  plan.operators[0].layout = Layout{{8, 2}, {1, 1}, {1, 1}};
  plan.operators[1].layout = Layout{{1, 1}, {4, 2}, {2, 1}};
  EXPECT_NO_THROW(verify(plan, small_graph(2)));
}

TEST(PlanText, ReadsLikeASentence) {
  Plan plan = data_plan(1, 8);
  plan.strategy = "osdp";
  plan.operators = {rule("block[2..47].mlp.*"), rule("block[1].mlp.fc1")};
  plan.operators[0].state = StateFactors{{8, 1}, {8, 1}, {8, 1}, std::nullopt, false};
  plan.operators[1].slices = 4;
  plan.operators[1].slice_state = {"zdp", "dp", "dp", "dp"};
  EXPECT_EQ(to_text(plan), R"(strategy = "osdp"
seed = 1
device_capacity_bytes = 0
recompute = "none"
gathered_after_recompute = "keep"
mesh = { nodes = 1, ranks_per_node = 8, axes = { data = 8 }, placement = "block" }
batch = { global = 96 }
schedule = { kind = "simultaneous", micro_batches = 1, sub_batches = 1, cross_pass = false }
stages = { count = 1, cut_by = "flops", cut_at = "block" }
dtypes = { compute = "f32", gradient = "f32" }
quantization = { weights = "none", gradients = "none", block = 256 }

[optimizer]
kind = "adamw"
momentum = 0.9
beta1 = 0.9
beta2 = 0.999
epsilon = 1e-08
weight_decay = 0.0
clip_norm = 0.0
sharding = "intra_tensor"
spread = "all_gather"
gradients = "all_reduce"

[overlap]
bucket_bytes = 26214400
all_reduce = "backward"
gather = "none"
gather_backward = "none"
reduce_scatter = "none"
broadcast = "none"
spread_bytes = 0
update = "none"
layout = "none"
panels = "next_product"
replica_stream = "shared"

[[operators]]
match = "block[2..47].mlp.*"
state = { p = "8x1", g = "8x1", os = "8x1" }

[[operators]]
match = "block[1].mlp.fc1"
slices = 4
slice_state = ["zdp", "dp", "dp", "dp"]
)");
}

TEST(PlanText, OnlyWhatWasPredictedIsPrinted) {
  Plan plan = data_plan(1, 8);
  plan.strategy = "ddp";
  EXPECT_THAT(to_text(plan), Not(HasSubstr("[why]")));
  plan.why.predicted_peak_bytes = 4096;
  plan.why.binding = "memory";
  EXPECT_THAT(to_text(plan), HasSubstr("\n[why]\npredicted_peak_bytes = 4096\nbinding = \"memory\"\n"));
  EXPECT_THAT(to_text(plan), Not(HasSubstr("predicted_seconds")));
  EXPECT_EQ(parse_plan(to_text(plan), "a.toml"), plan);
}

TEST(PlanText, AbsentKeysHaveTheirDefaults) {
  Plan plan;
  plan.strategy = "single";
  EXPECT_EQ(parse_plan("strategy = \"single\"", "a.toml"), plan);
}

TEST(PlanText, AxesKeepTheOrderOfTheFile) {
  const Plan plan = parse_plan("strategy = \"3d\"\nmesh = { axes = { tensor = 2, data = 4, stage = 3 } }", "a.toml");
  EXPECT_THAT(plan.mesh.axes, ElementsAre(MeshAxis{"tensor", 2}, MeshAxis{"data", 4}, MeshAxis{"stage", 3}));
  const Plan tables = parse_plan("strategy = \"3d\"\n[mesh.axes]\nstage = 3\ndata = 4", "a.toml");
  EXPECT_THAT(tables.mesh.axes, ElementsAre(MeshAxis{"stage", 3}, MeshAxis{"data", 4}));
}

TEST(PlanText, ErrorsNameFileLineKeyAndAccepted) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "p.toml:1: strategy: missing"},
      {"strategy = 3", "p.toml:1: strategy: an integer where a string is accepted"},
      {"strategy = \"ddp\"\nshedule = {}",
       "p.toml:2: shedule: unknown key; did you mean \"schedule\"?; accepted: strategy, seed"},
      {"strategy = \"ddp\"\nschedule = 3", "p.toml:2: schedule: an integer where a table is accepted"},
      {"strategy = \"ddp\"\n[schedule]\nkind = \"1f1\"",
       "p.toml:3: schedule.kind: unknown word \"1f1\"; did you mean \"1f1b\"?; accepted: "
       "simultaneous | gpipe | 1f1b | 2bw | interleaved | cyclic"},
      {"strategy = \"ddp\"\n[schedule]\nmicro_batches = 0",
       "p.toml:3: schedule.micro_batches: 0 is out of range; accepted: >= 1"},
      {"strategy = \"ddp\"\n[schedule]\nmicro_batches = 1.5",
       "p.toml:3: schedule.micro_batches: a real where an integer >= 1 is accepted"},
      {"strategy = \"ddp\"\n[schedule]\ncross_pass = 1",
       "p.toml:3: schedule.cross_pass: an integer where true or false is accepted"},
      {"strategy = \"ddp\"\nmesh = { axes = { dta = 2 } }",
       "p.toml:2: mesh.axes.dta: unknown key; did you mean \"data\"?"},
      {"strategy = \"ddp\"\nmesh = { axes = { data = \"2\" } }",
       "p.toml:2: mesh.axes.data: a string where an integer >= 1 is accepted"},
      {"strategy = \"ddp\"\nbatch = {}", "p.toml:2: batch.global: missing"},
      {"strategy = \"ddp\"\n[[operators]]\nstate = {}", "operators[0].match: missing"},
      {"strategy = \"ddp\"\n[[operators]]\nmatch = \"*\"\n\nstate = { p = \"4\" }",
       "p.toml:5: operators[0].state.p: \"4\" is not a factor; accepted: ranks in a node x nodes, as \"4x2\""},
      {"strategy = \"ddp\"\n[[operators]]\nmatch = \"*\"\nsum = \"allreduce\"",
       "p.toml:4: operators[0].sum: unknown word \"allreduce\"; did you mean \"all_reduce\"?; accepted: scatter | "
       "all_reduce"},
      {"strategy = \"ddp\"\n[[operators]]\nmatch = \"*\"\nalgorithm = \"suma\"",
       "p.toml:4: operators[0].algorithm: unknown word \"suma\"; did you mean \"summa\"?; accepted: local | summa | "
       "ring"},
      {"strategy = \"ddp\"\n[[operators]]\nmatch = \"*\"\ndirections = 0",
       "p.toml:4: operators[0].directions: 0 is out of range; accepted: >= 1"},
      {"strategy = \"ddp\"\n[[operators]]\nmatch = \"*\"\nslice_state = [\"dp\", 3]",
       "p.toml:4: operators[0].slice_state: unknown word 3; accepted: dp | sdp | zdp"},
      {"strategy = \"ddp\"\noperators = [1]", "p.toml:2: operators: a list of tables [[operators]] is accepted"},
      {"strategy = \"ddp\"\noperators = {}", "p.toml:2: operators: a table where a list is accepted"},
      {"strategy = \"ddp\"\n[optimizer]\nbeta1 = \"x\"",
       "p.toml:3: optimizer.beta1: a string where a number >= 0 is accepted"},
      {"strategy = \"ddp\"\n[optimizer]\nepsilon = inf", "p.toml:3: optimizer.epsilon: inf is out of range"},
      {"strategy = \"ddp\"\n[dtypes]\ncompute = \"fp16\"",
       "p.toml:3: dtypes.compute: unknown word \"fp16\"; accepted: f32 | bf16"},
      {"strategy = \"ddp\"\nrecompute = \"blocks\"",
       "p.toml:2: recompute: unknown word \"blocks\"; did you mean \"block\"?"},
      {"strategy = \"ddp\"\nseed = 2020-01-01", "p.toml:2: dates and times are not accepted"},
      {"strategy = \"ddp\"\nseed = = 1", "p.toml:2: not TOML"},
      {"strategy = \"ddp\"\nseed = -1", "p.toml:2: seed: -1 is out of range; accepted: >= 0"},
      {"strategy = \"ddp\"\n[mesh]\nnodes = 99999999999",
       "p.toml:3: mesh.nodes: 99999999999 is out of range; accepted: <= 2^30"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(user_error([&, toml = text] { parse_plan(toml, "p.toml"); }), HasSubstr(expected));
  }
}

/// Any plan the type can hold, well formed or not: the text form must not care.
class RandomPlan {
 public:
  explicit RandomPlan(unsigned seed) : engine_(seed) {}

  Plan operator()() {
    Plan plan;
    plan.strategy = text();
    plan.mesh = {count(), count(), {}, word({"block", "leaf-first", "zero-ring", "pyramid"})};
    for (int i = pick(4); i > 0; --i) plan.mesh.node_order.push_back(pick(plan.mesh.nodes));
    std::vector<std::string> axes = {"data", "tensor", "stage", "p0", "p1", "p2", "tmp"};
    std::shuffle(axes.begin(), axes.end(), engine_);
    axes.resize(static_cast<std::size_t>(pick(8)));
    for (const std::string& axis : axes) {
      plan.mesh.axes.push_back({axis, count()});
    }
    plan.global_batch = wide();
    plan.schedule = {static_cast<ScheduleKind>(pick(5)), count(), count(), flip()};
    if (plan.schedule.kind == ScheduleKind::cyclic) {  // others have no such words
      plan.schedule.fresh = word({"none", "v2", "01 11"});
      plan.schedule.sum = word({"inside", "after"});
      plan.schedule.spread = word({"relay", "direct"});
      plan.schedule.spare_stages = count();
      plan.schedule.shift = word({"free", "paced", "begun"});
      plan.schedule.updater = word({"last", "first_user"});
    }
    plan.stages = {count(), word({"flops", "operators", "parameters"})};
    for (int i = pick(5); i > 0; --i) {
      plan.operators.push_back(rule());
    }
    plan.recompute = static_cast<Recompute>(pick(3));
    plan.overlap = {wide(),
                    word({"none", "backward"}),
                    word({"none", "next_layer"}),
                    word({"none", "next_module"}),
                    word({"none", "grad_input"}),
                    word({"none", "next_forward"})};
    plan.optimizer = {word({"sgd", "adam", "adamw"}),
                      real(),
                      real(),
                      real(),
                      real(),
                      real(),
                      real(),
                      word({"inter_tensor", "intra_tensor"}),
                      word({"broadcast", "all_gather"})};
    plan.dtypes = {flip() ? DType::f32 : DType::bf16, flip() ? DType::f32 : DType::bf16};
    plan.quantization = {word({"none", "int8"}), word({"none", "int8", "int4"}), 15 + count()};
    plan.device_capacity_bytes = wide();
    plan.seed = static_cast<std::uint64_t>(wide());
    plan.why = {real(), wide(), text(), text()};
    return plan;
  }

 private:
  OperatorRule rule() {
    OperatorRule made;
    made.match = text();
    if (flip()) {
      made.state = StateFactors{factor(), factor(), factor(), std::nullopt, flip()};
      if (flip()) {
        made.state->p_backward = factor();
      }
    }
    if (flip()) {
      made.layout = Layout{factor(), factor(), factor()};
    }
    if (flip()) {
      made.algorithm = static_cast<MatmulAlgorithm>(pick(3));
    }
    if (flip()) {
      made.directions = 1 + pick(2);
    }
    if (flip()) {
      made.sum = static_cast<PartialSums>(pick(2));
    }
    if (flip()) {
      made.slices = pick(9);
    }
    for (int i = pick(4); i > 0; --i) {
      made.slice_state.push_back(word({"dp", "sdp", "zdp"}));
    }
    if (flip()) {
      made.recompute = static_cast<Recompute>(pick(3));
    }
    return made;
  }
  int pick(int below) { return static_cast<int>(engine_() % static_cast<unsigned>(below)); }
  bool flip() { return pick(2) == 1; }
  int count() { return 1 + pick(1000); }
  std::int64_t wide() { return 1 + static_cast<std::int64_t>(engine_() >> 1U) * (1 + pick(1000)) * (1 + pick(1000)); }
  double real() { return std::ldexp(static_cast<double>(engine_()) / 3.0, pick(80) - 60); }
  Factor factor() { return {count(), count()}; }
  std::string word(std::vector<std::string> words) {
    return words[static_cast<std::size_t>(pick(static_cast<int>(words.size())))];
  }
  std::string text() {
    const std::vector<std::string> letters = {"a", "Z",  "0", " ", "\"", "\\", "\n", "\t",   "*",
                                              "[", "..", "]", ".", "'",  "#",  "é",  "\x01", "="};
    std::string made;
    for (int i = pick(12); i > 0; --i) {
      made += word(letters);
    }
    return made;
  }

  std::mt19937 engine_;
};

TEST(PlanText, RandomPlansReadBackEqual) {
  RandomPlan random(7);
  for (int i = 0; i < 2000; ++i) {
    const Plan plan = random();
    const std::string text = to_text(plan);
    ASSERT_EQ(parse_plan(text, "random.toml"), plan) << text;
  }
}

TEST(PlanText, AnInfiniteSeedOfOursIsABug) {
  Plan plan;
  plan.seed = ~std::uint64_t{0};
  EXPECT_THROW(to_text(plan), InternalError);
}

/// Each number is accepted where it stands; their products are of more ranks than there are integers.
TEST(PlanVerify, ProductsBeyondTheirIntegersAreRefused) {
  const ModelGraph graph = small_graph(1);
  constexpr int large = 1 << 30;
  const auto refusal = [&](const auto& change) {
    Plan plan = data_plan(2, 2);
    change(plan);
    return user_error([&] { verify(plan, graph); });
  };
  EXPECT_THAT(refusal([](Plan& p) { p.mesh.nodes = p.mesh.ranks_per_node = large; }),
              HasSubstr("mesh.nodes: 1073741824 nodes x 1073741824 ranks; accepted: 1073741824 ranks at most"));
  EXPECT_THAT(refusal([](Plan& p) {
                p.mesh.axes = {{"data", large}, {"tensor", large}, {"p0", large}, {"p1", 16}};
              }),
              HasSubstr("mesh.axes: data 1073741824 x tensor 1073741824"));
  EXPECT_THAT(refusal([](Plan& p) { p.schedule.micro_batches = p.schedule.sub_batches = large; }),
              HasSubstr("batch.global: "));
  EXPECT_THAT(refusal([](Plan& p) {
                p.operators = {{.match = "*", .state = StateFactors{.p = {1 << 16, 1 << 16}}}};
              }),
              HasSubstr("operators[0].state.p: 65536x65536; accepted: 1073741824 ranks at most"));
}

}  // namespace
}  // namespace strata::test_plan
