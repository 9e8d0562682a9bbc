/// @file
/// The modes that plan layouts, on the models and clusters of AutoDDL's paper: layers read off a graph, what its
/// figures 7 and 10 say, memory, options, refusals.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cost/collective_formulas.hpp"
#include "planners/layouts/layout_planning.hpp"
#include "planners/layouts/megatron_layouts.hpp"
#include "planners/layouts/search_space.hpp"
#include "sharded.hpp"
#include "support/refusal.hpp"
#include "support/source_dir.hpp"

namespace strata::test_layout_modes {
namespace {

using testing::HasSubstr;
using Options = std::map<std::string, OptionValue>;

Cluster cluster_named(const std::string& name) {
  const std::string path = test::source_dir() + "/experiments/clusters/" + name + ".toml";
  std::ifstream stream(path);
  return parse_cluster({std::istreambuf_iterator<char>(stream), {}}, path);
}

/// f32, no limit of memory.
Plan asked(const Factor& grid, std::int64_t batch) {
  Plan plan = asked_on(grid, 1);
  plan.dtypes = {DType::f32, DType::f32};
  plan.global_batch = batch;
  return plan;
}

Plan on_daint(const char* mode, const ModelGraph& graph, const Plan& base, Options options = {}) {
  static const Cluster daint = cluster_named("daint-p100");
  return planned(mode, graph, base, std::move(options), daint);
}

/// By operator name.
std::map<std::string, Layout> layouts_of(const Plan& plan, const ModelGraph& graph) {
  std::map<std::string, Layout> result;
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    if (decisions[o].layout) result[graph.operators[o].name] = *decisions[o].layout;
  }
  return result;
}

TEST(LayoutLayers, OfATransformerAreItsLinearsWithTheResidualsAroundThem) {
  const ModelGraph graph = small_gpt(2, 1024);
  const LayerChain chain = layer_chain(graph);
  std::vector<std::string> names;
  for (const Layer& layer : chain.layers) names.push_back(layer.name);
  EXPECT_THAT(names, testing::ElementsAre("embedding", "block[0].attn.qkv", "block[0].attn.proj", "block[0].mlp.fc1",
                                          "block[0].mlp.fc2", "block[1].attn.qkv", "block[1].attn.proj",
                                          "block[1].mlp.fc1", "block[1].mlp.fc2", "head"));
  const auto find = [&](int from, int to) {
    return std::ranges::find_if(chain.links, [&](const LayerLink& l) { return l.from == from && l.to == to; });
  };
  ASSERT_EQ(chain.links.size(), 9U + 4U);
  EXPECT_TRUE(find(3, 4)->is_unary);   // fc1, gelu, fc2
  EXPECT_FALSE(find(1, 2)->is_unary);  // attention by heads
  EXPECT_TRUE(find(1, 2)->is_branch);
  EXPECT_FALSE(find(2, 3)->is_branch);  // a residual addition and a norm
  EXPECT_FALSE(find(0, 2)->gathers);    // the residual around the first attention
  EXPECT_EQ(find(0, 2)->elements, 256 * 1024);
  EXPECT_TRUE(chain.layers[0].reads_data);
  EXPECT_EQ(chain.layers[1].repeats, chain.layers[5].repeats);
  EXPECT_NE(chain.layers[1].repeats, chain.layers[2].repeats);
  std::int64_t parameters = 0;
  for (const Layer& layer : chain.layers) parameters += layer.parameters;
  EXPECT_EQ(parameters, graph.num_parameters());
  EXPECT_EQ(layer_chain(small_gpt(2, 1024, true)).layers.back().tied_weight, 0);
}

TEST(LayoutLayers, OfAVggAreConvolutionsAndThreeDenseOnes) {
  const LayerChain chain = layer_chain(build_model({.name = "vgg13"}));
  ASSERT_EQ(chain.layers.size(), 13U);
  EXPECT_EQ(std::ranges::count_if(chain.layers, &Layer::is_searched), 3);
  EXPECT_EQ(chain.layers[10].in, 7 * 7 * 512);
  EXPECT_TRUE(chain.links[9].is_unary);  // out of a convolution: images are gathered along samples
  EXPECT_TRUE(chain.links[10].is_unary);
}

/// AutoDDL's figure 7. The cluster file's latency is an estimate; in rings it makes two copies of the smallest weight,
/// a thirtieth of the three, cheaper than messages to all 32 ranks.
TEST(AutoDdl, Vgg13KeepsItsDenseWeightsOnceOn32Ranks) {
  const ModelGraph graph = build_model({.name = "vgg13"});
  const LayerChain chain = layer_chain(graph);
  for (const char* cost : {"volume", "paper", "analytic"}) {
    const Plan plan = on_daint("autoddl", graph, asked({1, 32}, 256), {{"cost", std::string(cost)}});
    EXPECT_NO_THROW(verify(plan, graph));
    const std::map<std::string, Layout> layouts = layouts_of(plan, graph);
    EXPECT_EQ(layouts.at("block[0].conv[0]"), replicated_layout({1, 32}));
    for (const Layer& layer : chain.layers) {
      if (!layer.is_searched) continue;
      const MatmulSize size{.weights = static_cast<double>(layer.parameters)};
      const double reduced = weight_gradient_volume(size, layouts.at(layer.name)).all_reduce;
      const bool is_small = layer.name == "classifier.fc3" && std::string(cost) == "paper";
      EXPECT_LE(layouts.at(layer.name).p0.total(), is_small ? 2 : 1) << layer.name << " " << cost;
      if (!is_small) {
        EXPECT_EQ(reduced, 0.0) << layer.name << " " << cost;
      }
    }
  }
}

TEST(AutoDdl, Figure10PutsActivationsOnTheFastLinks) {
  // Two nodes of 8: data parallelism would send all dense weights between the nodes.
  const Cluster gcp = cluster_named("gcp-a100");
  const ModelGraph graph = build_model({.name = "vgg13"});
  const Plan base = asked({8, 2}, 256);
  const Plan best = planned("autoddl", graph, base, {}, gcp);
  const Plan megatron = planned("megatron", graph, base, {}, gcp);
  EXPECT_LT(best.why.predicted_seconds, 0.5 * megatron.why.predicted_seconds);
}

TEST(AutoDdl, NeverMovesMoreThanMegatronAndFreeLayersNeverMoreThanTied) {
  const ModelGraph graph = small_gpt(3, 1024);
  for (const Factor grid : {Factor{1, 4}, Factor{1, 16}, Factor{4, 4}}) {
    const Cluster cluster = grid.in_node == 1 ? cluster_named("daint-p100") : cluster_named("rtx3090-nvlink");
    Cluster wide = cluster;
    wide.nodes = 64;
    for (const char* cost : {"volume", "paper", "analytic"}) {
      const Options by{{"cost", std::string(cost)}};
      Options free = by, unpinned = by;
      free["repeated_layers"] = std::string("free");
      unpinned["tensor_in_node"] = false;
      const Plan base = asked(grid, 64);
      const PlanRequest request{.graph = graph,
                                .cluster = wide,
                                .base = base,
                                .options = {{"cost", std::string(cost)},
                                            {"zero", std::string("none")},
                                            {"stages", std::int64_t{1}},
                                            {"schedule", std::string("1f1b")}}};
      const LayoutPlanning planning(request, {});
      const auto seconds = [&](const char* mode, const Options& options) {
        const Plan plan = planned(mode, graph, base, options, wide);
        const std::map<std::string, Layout> layouts = layouts_of(plan, graph);
        std::vector<Layout> by_layer;
        for (const Layer& layer : planning.chain().layers) by_layer.push_back(layouts.at(layer.name));
        return planning.seconds(by_layer);
      };
      const double tied = seconds("autoddl", by), rounding = 1 + 1e-9;
      EXPECT_LE(tied, seconds("megatron", unpinned) * rounding) << cost;
      EXPECT_LE(seconds("autoddl", free), tied * rounding) << cost;
    }
  }
}

TEST(AutoDdl, EverySearchFindsAPlanAndSaysHow) {
  const ModelGraph graph = build_model({.name = "mlp-cifar"});
  const Plan base = asked({1, 8}, 64);
  const Plan exact = on_daint("autoddl", graph, base);
  for (const char* search : {"exhaustive", "random", "metropolis_hastings", "coordinate_descent"}) {
    const Plan plan = on_daint("autoddl", graph, base, {{"search", std::string(search)}, {"trace", true}});
    EXPECT_NO_THROW(verify(plan, graph)) << search;
    EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan) << search;
    EXPECT_THAT(plan.why.binding, HasSubstr(search));
    EXPECT_FALSE(plan.why.trace.empty()) << search;
  }
  EXPECT_EQ(layouts_of(on_daint("autoddl", graph, base, {{"search", std::string("exhaustive")}}), graph).size(),
            layouts_of(exact, graph).size());
  EXPECT_DOUBLE_EQ(on_daint("autoddl", graph, base, {{"search", std::string("exhaustive")}}).why.predicted_seconds,
                   exact.why.predicted_seconds);
  EXPECT_THAT(on_daint("autoddl", graph, base, {{"search", std::string("metropolis_hastings")}}).why.binding,
              HasSubstr("of proposals accepted"));
}

TEST(AutoDdl, PlansOfEveryModelAreValid) {
  for (const char* model : {"gpt-nano", "llama-nano", "vgg-nano", "vit-nano", "mlp-tiny"}) {
    const ModelGraph graph = build_model({.name = model});
    for (const Factor grid : {Factor{1, 1}, Factor{1, 2}, Factor{1, 4}}) {
      for (const char* mode : {"autoddl", "megatron", "decomposed", "summa"}) {
        for (const char* zero : {"none", "zero1"}) {
          if (std::string_view(mode) == "summa" && std::string_view(zero) == "zero1")
            continue;  // nothing is held twice
          const Plan plan = on_daint(mode, graph, asked(grid, 24), {{"zero", std::string(zero)}});
          EXPECT_NO_THROW(verify(plan, graph)) << model << " " << mode;
          EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan) << model << " " << mode;
          const std::vector<OperatorDecision> decisions = resolve(plan, graph);
          for (std::size_t o = 0; o < decisions.size(); ++o) {
            if (graph.operators[o].parameters.empty()) continue;
            ASSERT_TRUE(decisions[o].layout) << graph.operators[o].name;
            const Factor cut = std::string(zero) == "zero1" ? decisions[o].layout->p0 : Factor{};
            EXPECT_EQ(decisions[o].state.os, cut);
          }
        }
      }
    }
  }
}

TEST(AutoDdl, ATiedHeadIsCutAsTheEmbeddingTurnedAround) {
  const ModelGraph graph = small_gpt(1, 1024, true);
  const std::map<std::string, Layout> layouts = layouts_of(on_daint("autoddl", graph, asked({1, 8}, 16)), graph);
  const Layout embedding = layouts.at("embedding"), head = layouts.at("head");
  EXPECT_EQ(embedding.p0, head.p0);
  EXPECT_EQ(embedding.p1, head.p2);
  EXPECT_EQ(embedding.p2, head.p1);
}

TEST(AutoDdl, AFixedLayoutIsTakenOrRefusedWithWhatItBreaks) {
  const ModelGraph graph = small_gpt(1, 1024);
  const Plan plan = on_daint("autoddl", graph, asked({1, 8}, 16), {{"layout", std::string("1x2,1x2,1x2")}});
  const Layout two{.p0 = {1, 2}, .p1 = {1, 2}, .p2 = {1, 2}};
  EXPECT_EQ(layouts_of(plan, graph).at("block[0].attn.qkv"), two);
  EXPECT_EQ(layouts_of(plan, graph).at("head"), two);
  EXPECT_THROW(on_daint("autoddl", graph, asked({1, 8}, 16), {{"layout", std::string("1x2,1x2")}}), UserError);
  EXPECT_THAT(refusal([&] {
                on_daint("autoddl", graph, asked({1, 32}, 16), {{"layout", std::string("1x1,1x32,1x1")}});
              }),
              HasSubstr("16 heads of block[0].attn.core are fewer than p1·p2 = 32"));
  // Three divide neither heads nor samples: parts are unequal, and no one is left without.
  EXPECT_NO_THROW(verify(on_daint("autoddl", graph, asked({1, 3}, 16)), graph));
  Plan in_three = asked({1, 2}, 16);
  in_three.schedule.micro_batches = 3;
  EXPECT_THAT(refusal([&] { on_daint("autoddl", graph, in_three); }), HasSubstr("16 samples are not divisible by 3"));
}

TEST(AutoDdl, ACapOfP0AndACapacityKeepWeightsFewer) {
  const ModelGraph graph = small_gpt(2, 1024);
  Plan base = asked({1, 8}, 512);
  base.schedule.micro_batches = 64;  // states are what takes memory
  const auto most = [&](const Plan& plan) {
    int p0 = 0;
    for (const auto& [name, layout] : layouts_of(plan, graph)) p0 = std::max(p0, layout.p0.total());
    return p0;
  };
  const Plan unlimited = on_daint("autoddl", graph, base);
  ASSERT_EQ(most(unlimited), 8);
  const Plan capped = on_daint("autoddl", graph, base, {{"max_p0", std::int64_t{2}}});
  EXPECT_LE(most(capped), 2);
  EXPECT_GT(capped.why.predicted_seconds, unlimited.why.predicted_seconds);
  EXPECT_LT(capped.why.predicted_peak_bytes, unlimited.why.predicted_peak_bytes);

  Plan limited = base;
  limited.device_capacity_bytes = (capped.why.predicted_peak_bytes + unlimited.why.predicted_peak_bytes) / 2;
  const Plan fitting = on_daint("autoddl", graph, limited);
  EXPECT_LE(fitting.why.predicted_peak_bytes, limited.device_capacity_bytes);
  EXPECT_GT(fitting.why.predicted_seconds, unlimited.why.predicted_seconds);
  EXPECT_THAT(fitting.why.binding, HasSubstr("binds memory"));
  limited.device_capacity_bytes = 1 << 20;
  for (const char* mode : {"autoddl", "megatron", "decomposed", "summa"}) {
    EXPECT_THAT(out_of_memory([&] { on_daint(mode, graph, limited); }), HasSubstr("nothing fits into a device memory"));
  }
}

/// A Program that needs so much more than the closed form says, or that nobody lowers.
class Lowered final : public Evaluate {
 public:
  Lowered(const LastingBytes& lasting, const LayerChain& chain, const ModelGraph& graph, double factor)
      : lasting_(lasting), chain_(chain), graph_(graph), factor_(factor) {}
  Evaluation operator()(const Plan& plan) const override { return memory(plan); }
  bool knows_seconds() const override { return false; }
  Evaluation account(const Plan& plan) const override { return memory(plan); }
  Evaluation memory(const Plan& plan) const override {
    if (factor_ == 0.0) return {.missing = "a layout cannot be lowered"};
    const std::map<std::string, Layout> layouts = layouts_of(plan, graph_);
    std::vector<Layout> by_layer;
    for (const Layer& layer : chain_.layers) by_layer.push_back(layouts.at(layer.name));
    return {.peak_bytes = std::llround(factor_ * static_cast<double>(lasting_.of_all(chain_, by_layer)))};
  }
  Evaluation least_memory(const Plan& plan) const override { return memory(plan); }
  PricedStep price(const Plan&, const ModelGraph&) const override { return {.missing = "nothing is priced here"}; }
  double collective_seconds(Collective, const Mesh&, std::span<const int>, std::int64_t) const override { return 0.0; }

 private:
  const LastingBytes& lasting_;
  const LayerChain& chain_;
  const ModelGraph& graph_;
  double factor_;
};

TEST(LayoutModes, TheProgramHasTheLastWordOnMemory) {
  const ModelGraph graph = small_gpt(2, 1024);
  const Cluster daint = cluster_named("daint-p100");
  for (const char* mode : {"autoddl", "megatron"}) {  // summa's grids all need nearly the same
    const Planner& planner = find_planner(mode);
    Plan base = asked({1, 8}, 512);
    base.schedule.micro_batches = 64;
    base.strategy = mode;
    PlanRequest request{.graph = graph, .cluster = daint, .base = base, .options = {}};
    for (const OptionRow& row : planner.options()) request.options.emplace(row.name, row.default_value);
    const Plan unlimited = planner.plan(request);
    const std::int64_t closed_form = unlimited.why.predicted_peak_bytes;
    const LayoutPlanning planning(request, {});
    const Lowered half_more(planning.lasting_bytes(), planning.chain(), graph, 1.5),
        refused(planning.lasting_bytes(), planning.chain(), graph, 0.0);
    request.base.device_capacity_bytes = closed_form;
    request.evaluate = &refused;
    EXPECT_EQ(refusal([&] { planner.plan(request); }), "a layout cannot be lowered") << mode;

    request.evaluate = &half_more;
    const Plan plan = planner.plan(request);
    EXPECT_NE(plan.operators, unlimited.operators) << mode;
    EXPECT_LE(plan.why.predicted_peak_bytes, closed_form) << mode;
    EXPECT_THAT(plan.why.binding, HasSubstr("bytes by the Program"));
    request.base.device_capacity_bytes = closed_form / 1000;
    EXPECT_THAT(out_of_memory([&] { planner.plan(request); }), HasSubstr("nothing fits into a device memory")) << mode;
  }
}

TEST(LayoutModes, StagesLayOutTheirOwnRanks) {
  const ModelGraph graph = small_gpt(4, 1024);
  for (const char* mode : {"megatron", "decomposed", "autoddl", "summa"}) {
    Plan base = asked({1, 8}, 64);
    base.schedule.micro_batches = 4;
    const Plan plan = on_daint(mode, graph, base, {{"stages", std::int64_t{2}}, {"schedule", std::string("gpipe")}});
    EXPECT_EQ(plan.mesh.axes, (std::vector<MeshAxis>{{"stage", 2}})) << mode;
    EXPECT_EQ(plan.stages.count, 2);
    EXPECT_EQ(plan.schedule.kind, ScheduleKind::gpipe);
    for (const auto& [name, layout] : layouts_of(plan, graph)) {
      EXPECT_EQ(layout.p0.total() * layout.p1.total() * layout.p2.total(), 4) << mode << ": " << name;
    }
    EXPECT_NO_THROW(verify(plan, graph));
    const auto refused = [&](std::int64_t stages) {
      return refusal([&] { on_daint(mode, graph, base, {{"stages", stages}}); });
    };
    EXPECT_THAT(refused(3), HasSubstr("in 3 stages on 8 nodes × 1 ranks: a stage is neither whole nodes nor"));
    EXPECT_THAT(refused(8), HasSubstr("gpt has 4 blocks, and a stage has one or more"));
    base = asked({1, 4}, 64);
    EXPECT_THAT(refused(4), HasSubstr("a rank a stage has nothing to lay out"));
  }
}

/// Ranks that hold several stages of eight blocks each, in rounds of as many micro-batches as there are such places.
TEST(LayoutModes, InterleavedStagesShareTheirRanks) {
  const ModelGraph graph = small_gpt(8, 1024);
  for (const char* mode : {"megatron", "autoddl", "summa", "oases"}) {
    Plan base = asked({1, 8}, 64);
    base.schedule.micro_batches = 4;
    const auto plan_of = [&](std::int64_t stages, std::int64_t chunks) {
      return on_daint(mode, graph, base,
                      {{"stages", stages}, {"schedule", std::string("interleaved")}, {"chunks", chunks}});
    };
    for (const auto& [stages, chunks] : {std::pair{4, 2}, {8, 4}, {8, 2}, {4, 1}}) {
      const Plan plan = plan_of(stages, chunks);
      EXPECT_EQ(plan.mesh.axes, (std::vector<MeshAxis>{{"stage", stages / chunks}})) << mode;
      EXPECT_EQ(plan.stages.count, stages);
      EXPECT_EQ(plan.schedule.kind, ScheduleKind::interleaved);
      for (const auto& [name, layout] : layouts_of(plan, graph)) {
        EXPECT_EQ(layout.p0.total() * layout.p1.total() * layout.p2.total(), 8 * chunks / stages) << mode << name;
      }
      EXPECT_NO_THROW(verify(plan, graph));
    }
    EXPECT_EQ(plan_of(1, 2).stages.count, 1) << "of one stage nothing is interleaved";
    const auto refused = [&](std::int64_t stages, std::int64_t chunks) {
      return refusal([&] { plan_of(stages, chunks); });
    };
    EXPECT_THAT(refused(10, 2), HasSubstr("in 10 stages on 8 nodes × 1 ranks: gpt has 8 blocks"));
    EXPECT_THAT(refused(6, 4), HasSubstr("on 8 ranks: 6 interleaved stages in chunks of 4; accepted: 8 or a greater"));
    EXPECT_THAT(refused(2, 2),
                HasSubstr("2 interleaved stages in chunks of 2; accepted: 4 or a greater multiple of 2"));
    EXPECT_THAT(refused(6, 2), HasSubstr("in 6 stages on 8 nodes × 1 ranks: each of 3 places is neither whole nodes"));
    EXPECT_THAT(refused(8, 1), HasSubstr("a rank a stage has nothing to lay out; strategy.name = interleaved does"));
    base.schedule.micro_batches = 2;
    EXPECT_THAT(refused(8, 2), HasSubstr("train.micro_batches = 2 is no multiple of the 4 places of interleaved"));
  }
}

/// What the closed form says of a place's memory at least, its Program needs: of stages a place in flight too.
TEST(LayoutModes, WhatLastsIsNoMoreThanAProgramNeeds) {
  const ModelGraph graph = small_gpt(8, 256);
  for (const auto& [schedule, stages, chunks] : {std::tuple{"1f1b", 2, 1},
                                                 {"1f1b", 4, 1},
                                                 {"gpipe", 4, 1},
                                                 {"interleaved", 4, 2},
                                                 {"interleaved", 8, 2},
                                                 {"interleaved", 8, 4}}) {
    for (const int micro_batches : {4, 8}) {
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        Plan base = asked({1, 8}, 64);
        base.schedule.micro_batches = micro_batches;
        base.recompute = recompute;
        base.strategy = "megatron";
        const Planner& planner = find_planner("megatron");
        static const Cluster daint = cluster_named("daint-p100");
        PlanRequest request{.graph = graph, .cluster = daint, .base = base, .options = {}};
        for (const OptionRow& row : planner.options()) request.options.emplace(row.name, row.default_value);
        request.options["schedule"] = std::string(schedule);
        request.options["stages"] = std::int64_t{stages};
        request.options["chunks"] = std::int64_t{chunks};
        const LayoutPlanning planning(request, {});
        const std::vector<Layout> layouts = megatron_layouts(planning.chain(), planning.grid(), planning.grid());
        const std::int64_t at_least = planning.peak(layouts).bytes;
        const std::int64_t of_program = LoweredAccount(graph).memory(planning.with_rules(layouts)).peak_bytes;
        EXPECT_LE(at_least, of_program) << schedule << ", " << stages << " stages, " << micro_batches;
        EXPECT_GE(3 * at_least, of_program) << schedule << ", " << stages << " stages, " << micro_batches;
      }
    }
  }
}

TEST(LayoutModes, LinksFittedToAProfileDecideWhereAskedFor) {
  const ModelGraph graph = build_model({.name = "mlp-cifar"});
  const Planner& planner = find_planner("autoddl");
  const Cluster unknown;
  PlanRequest request{.graph = graph, .cluster = unknown, .base = asked({2, 2}, 64), .options = {}};
  for (const OptionRow& row : planner.options()) request.options.emplace(row.name, row.default_value);
  request.options["cost"] = std::string("measured");
  double slow_seconds = 0.0;
  for (const double seconds_a_byte : {1e-8, 1e-10}) {
    request.measured_links = [=] {
      const Line line{1e-6, seconds_a_byte, 0.0};
      return LinkLines{.inside = line, .across = line, .num_inside = 4, .num_across = 4};
    };
    const double seconds = planner.plan(request).why.predicted_seconds;
    EXPECT_GT(seconds, 0.0);
    if (slow_seconds == 0.0) slow_seconds = seconds;
  }
  EXPECT_LT(planner.plan(request).why.predicted_seconds, slow_seconds);
  request.measured_links = [] { return LinkLines{.inside = {}, .across = {}, .num_inside = 4}; };
  EXPECT_THAT(refusal([&] { planner.plan(request); }), HasSubstr("collectives measured across nodes"));
}

TEST(LayoutModes, NobodyAsksForCostsWhereThereIsNothingToCompare) {
  const ModelGraph graph = small_gpt(1, 1024);
  const Plan base = asked({1, 4}, 16);
  const Cluster unknown;
  const auto plan_of = [&](const char* mode, Options options) {
    return planned(mode, graph, base, std::move(options), unknown);
  };
  const Plan plan = plan_of("megatron", {{"tensor", std::string("1x2")}});
  EXPECT_EQ(plan.operators, on_daint("megatron", graph, base, {{"tensor", std::string("1x2")}}).operators);
  EXPECT_EQ(plan.why.predicted_seconds, 0.0);
  EXPECT_THAT(plan.why.binding, HasSubstr("communication of unknown cost"));
  EXPECT_THROW(plan_of("megatron", {}), CostsUnknown);
  EXPECT_THROW(plan_of("autoddl", {}), CostsUnknown);
}

TEST(Megatron, CutsColumnsThenRowsAndTheVocabulary) {
  const ModelGraph graph = small_gpt(1, 1024);
  const Plan plan = on_daint("megatron", graph, asked({1, 8}, 16), {{"tensor", std::string("1x4")}});
  const std::map<std::string, Layout> layouts = layouts_of(plan, graph);
  const Factor two{1, 2}, four{1, 4}, one{};
  const Layout columns{.p0 = two, .p1 = four, .p2 = one}, rows{.p0 = two, .p1 = one, .p2 = four};
  EXPECT_EQ(layouts.at("embedding"), rows);
  EXPECT_EQ(layouts.at("block[0].attn.qkv"), columns);
  EXPECT_EQ(layouts.at("block[0].attn.proj"), rows);
  EXPECT_EQ(layouts.at("block[0].mlp.fc1"), columns);
  EXPECT_EQ(layouts.at("block[0].mlp.fc2"), rows);
  EXPECT_EQ(layouts.at("head"), columns);
  EXPECT_EQ(layouts.at("final_norm"), home_layout(rows, {1, 8}));
  const ModelGraph llama = build_model({.name = "llama-nano"});
  const auto of_llama =
      layouts_of(on_daint("megatron", llama, asked({1, 2}, 4), {{"tensor", std::string("1x2")}}), llama);
  int cut_by_columns = 0, cut_by_rows = 0;
  for (const Operator& op : llama.operators) {
    if (op.kind != OperatorKind::linear) continue;
    (of_llama.at(op.name).p1.total() == 2 ? cut_by_columns : cut_by_rows) += 1;
  }
  EXPECT_EQ(cut_by_columns, 2 * 2 + 1);
  EXPECT_EQ(cut_by_rows, 2 * 2);
}

TEST(Megatron, StaysInsideANodeUnlessAsked) {
  EXPECT_EQ(divisors({4, 1}), (std::vector<Factor>{{1, 1}, {2, 1}, {4, 1}}));
  EXPECT_EQ(divisors({4, 2}).size(), 6U);
  const ModelGraph graph = small_gpt(1, 1024);
  EXPECT_THAT(refusal([&] {
                on_daint("megatron", graph, asked({1, 8}, 16), {{"tensor", std::string("1x3")}});
              }),
              HasSubstr("tensor = 1x3 does not divide"));
}

/// `megatron`'s layouts, and the same degrees allowed; all linears by blocks, and inputs gathered once more in
/// backward.
TEST(Decomposed, TakesMegatronsDegreesApart) {
  const ModelGraph graph = small_gpt(1, 1024);
  const std::map<std::string, OptionValue> options{{"tensor", std::string("1x4")}, {"cost", std::string("volume")}};
  const Plan whole = on_daint("megatron", graph, asked({1, 8}, 16), options);
  const Plan plan = on_daint("decomposed", graph, asked({1, 8}, 16), options);
  EXPECT_EQ(layouts_of(plan, graph), layouts_of(whole, graph));
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const Operator& op = graph.operators[o];
    if (op.parameters.empty()) continue;
    const bool is_linear = op.kind == OperatorKind::linear;
    EXPECT_EQ(decisions[o].algorithm, is_linear ? MatmulAlgorithm::ring : MatmulAlgorithm::local) << op.name;
  }
  EXPECT_EQ(plan.why.predicted_peak_bytes < whole.why.predicted_peak_bytes, true);
  EXPECT_THAT(refusal([&] {
                on_daint("decomposed", graph, asked({1, 8}, 16), {{"tensor", std::string("1x3")}});
              }),
              HasSubstr("tensor = 1x3 does not divide"));
}

TEST(Summa, PutsEveryLinearOnOneGridAndTheEmbeddingBesideIt) {
  const ModelGraph graph = small_gpt(1, 1024);
  const Plan plan = on_daint("summa", graph, asked({1, 8}, 16), {{"rows", std::string("1x2")}});
  const Factor two{1, 2}, four{1, 4}, one{};
  const Layout grid{.p0 = two, .p1 = one, .p2 = four};
  const std::map<std::string, Layout> layouts = layouts_of(plan, graph);
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    const Operator& op = graph.operators[o];
    if (op.parameters.empty()) continue;
    const bool is_linear = op.kind == OperatorKind::linear;
    EXPECT_EQ(decisions[o].algorithm, is_linear ? MatmulAlgorithm::summa : MatmulAlgorithm::local) << op.name;
    EXPECT_EQ(layouts.at(op.name) == grid, is_linear) << op.name;
  }
  EXPECT_EQ(layouts.at("embedding"), (Layout{.p0 = one, .p1 = four, .p2 = two}));
  EXPECT_EQ(layouts.at("final_norm"), (Layout{.p0 = two, .p1 = four, .p2 = one}));
  // Weights are held by the replicas, whatever the rows are, and zero1 shares their optimizer states.
  const Plan twice =
      on_daint("summa", graph, asked({1, 8}, 16),
               {{"replicas", std::string("1x4")}, {"rows", std::string("1x2")}, {"zero", std::string("zero1")}});
  EXPECT_EQ(layouts_of(twice, graph).at("head"), (Layout{.p0 = two, .p1 = four, .p2 = one}));
  for (const OperatorRule& rule : twice.operators) EXPECT_EQ(rule.state->os, four) << rule.match;
  EXPECT_NO_THROW(verify(twice, graph));
}

/// m = k = n: a square grid moves least, and its share falls as the square root of the ranks.
TEST(Summa, TakesTheSquareGridForASquareProduct) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {1024, 1024, 1024}});
  const auto moved = [&](int nodes) {
    Plan base = asked({1, nodes}, 1024);
    const Plan plan = on_daint("summa", graph, base, {{"cost", std::string("volume")}});
    int side = 1;
    while (side * side < nodes) ++side;
    EXPECT_EQ(layouts_of(plan, graph).at("head"), (Layout{.p0 = {1, side}, .p1 = {}, .p2 = {1, side}})) << nodes;
    const MatmulSize square{.m = 1024, .k = 1024, .n = 1024};
    return summa_forward_volume(square, {.p0 = {1, side}, .p1 = {}, .p2 = {1, side}}).total();
  };
  EXPECT_DOUBLE_EQ(moved(16) * 4.0 / 3.0, 2.0 * moved(64) * 8.0 / 7.0);
}

TEST(Summa, RefusesGridsWithMoreRanksThanThereIsToCut) {
  const ModelGraph graph = small_gpt(1, 1024);
  const auto refused = [&](std::map<std::string, OptionValue> options) {
    return refusal([&] { on_daint("summa", graph, asked({1, 8}, 16), options); });
  };
  EXPECT_THAT(refused({{"rows", std::string("1x3")}}), HasSubstr("rows · replicas = 1x3 does not divide"));
  EXPECT_THAT(refused({{"replicas", std::string("1x3")}}), HasSubstr("replicas = 1x3 does not divide"));
  EXPECT_THROW(refused({{"replicas", std::string("many")}}), UserError);
  EXPECT_THAT(refused({{"zero", std::string("zero1")}}), HasSubstr("zero = zero1 with replicas = 1x1"));
  // Two columns divide six heads, and the four panels of the projection behind them need not.
  const ModelGraph six_heads = build_model({.name = "gpt",
                                            .layers = 1,
                                            .hidden = 48,
                                            .heads = 6,
                                            .vocabulary = 64,
                                            .sequence_length = 4,
                                            .tied_head = false});
  EXPECT_NO_THROW(on_daint("summa", six_heads, asked({1, 8}, 16), {{"rows", std::string("1x4")}}));
  EXPECT_THAT(refusal([&] {
                on_daint("summa", six_heads, asked({1, 8}, 16), {{"rows", std::string("1x1")}});
              }),
              HasSubstr("6 heads of block[0].attn.core are fewer than p2 = 8"));
  const ModelGraph small = build_model({.name = "mlp", .widths = {2, 10, 4}});
  EXPECT_THAT(refusal([&] { on_daint("summa", small, asked({1, 8}, 3)); }), HasSubstr("no degrees are possible"));
}

TEST(LayoutModes, CostsThatAreNotKnownAreRefused) {
  const ModelGraph graph = build_model({.name = "mlp-tiny"});
  const Cluster unknown;
  for (const char* mode : {"autoddl", "megatron", "decomposed", "summa"}) {
    EXPECT_THAT(refusal([&] {
                  planned(mode, graph, asked({2, 1}, 8), {}, unknown);
                }),
                HasSubstr("intra_node.bandwidth_bytes_per_second"));
    EXPECT_THAT(refusal([&] {
                  planned(mode, graph, asked({2, 1}, 8), {{"cost", std::string("measured")}}, unknown);
                }),
                HasSubstr("a profile"));
    const Plan by_volume = planned(mode, graph, asked({2, 1}, 8), {{"cost", std::string("volume")}}, unknown);
    EXPECT_EQ(by_volume.why.predicted_seconds, 0.0);
  }
}

TEST(LinkCosts, OfRingsAreFastInsideANode) {
  const LinkCosts costs{.inside_alpha_seconds = 1e-6,
                        .inside_beta_seconds_per_byte = 1e-11,
                        .across_alpha_seconds = 1e-5,
                        .across_beta_seconds_per_byte = 1e-9};
  EXPECT_DOUBLE_EQ(costs.seconds(Collective::all_gather, 1e6, {4, 1}), 3e-6 + 1e-5);
  EXPECT_DOUBLE_EQ(costs.seconds(Collective::all_reduce, 1e6, {1, 4}), 6e-5 + 1e-3);
  EXPECT_DOUBLE_EQ(costs.seconds(Collective::all_reduce, 1e6, {8, 4}), 62e-5 + 1e-3);
}

TEST(LinkCosts, OfANetworkAreTheSimulatorsAndNetworkCardsAreShared) {
  const LinkCosts costs{.network = a800_ib(), .ranks_per_node = 8};  // four cards a node
  const auto alone = [](Collective kind, std::int64_t bytes, const Factor& group) {
    return nccl_like_seconds(kind, bytes, group, a800_ib().intra_node, a800_ib());
  };
  constexpr std::int64_t full = 1 << 24;
  // What a rank moves of it: (q-1)/q, twice that for an all-reduce.
  EXPECT_DOUBLE_EQ(costs.seconds(Collective::all_gather, 0.75 * full, {4, 1}),
                   alone(Collective::all_gather, full, {4, 1}));
  EXPECT_DOUBLE_EQ(costs.seconds(Collective::all_to_all, 0.875 * full, {8, 1}),
                   alone(Collective::all_to_all, full, {8, 1}));
  EXPECT_DOUBLE_EQ(costs.seconds(Collective::all_reduce, 1.5 * full, {1, 4}),
                   2.0 * alone(Collective::all_reduce, full, {1, 4}));  // 8 groups of a card each, on 4 cards
  EXPECT_DOUBLE_EQ(costs.seconds(Collective::all_reduce, 2.0 * 31 / 32 * full, {8, 4}),
                   alone(Collective::all_reduce, full, {8, 4}));
  EXPECT_DOUBLE_EQ(costs.seconds(Collective::reduce_scatter, 0.875 * full, {2, 4}),
                   2.0 * alone(Collective::reduce_scatter, full, {2, 4}));
}

}  // namespace
}  // namespace strata::test_layout_modes
