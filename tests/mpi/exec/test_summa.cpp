/// @file
/// SUMMA trains what one rank trains: every grid of rows × replicas × columns on exact inputs with ==, among products
/// in other layouts too, real models within rounding, with accumulation, recomputation, bf16 and sharded states.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"
#include "planners/layouts/candidates.hpp"

namespace strata::test_summa {
namespace {

class Summa : public LaidOut {
 protected:
  /// Rows p0 × replicas p1 × columns p2.
  std::vector<Layout> grids() const { return all_layouts(grid()); }
};

OperatorRule summa(const std::string& match, const Layout& grid) {
  return {.match = match, .layout = grid, .algorithm = MatmulAlgorithm::summa};
}

void expect_equal(const Trained& ours, const Trained& reference, const std::string& what) {
  for (const auto& [parameter, values] : ours.parameters) {
    EXPECT_EQ(values, reference.parameters.at(parameter)) << parameter << ", " << what;
  }
}

TEST_F(Summa, EveryGridIsEqualToOneRank) {
  const bool is_exact = 8 % size() == 0;
  for (const int micro_batches : {1, 2}) {
    const Training training = is_exact ? exact_for_layouts(micro_batches) : rounded_for_layouts(micro_batches);
    const Trained reference = alone(training);
    const std::vector<Layout> all = grids();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (micro_batches > 1 && i % 3 != 0) continue;
      const Layout& other = all[(5 * i + 2) % all.size()];
      // Grids alike, grids that change from product to product, and local products before and behind.
      const std::vector<std::vector<OperatorRule>> ways = {
          {summa("*", all[i])},
          {summa("block[0].linear", all[i]), summa("block[1].linear", other), summa("head", all[i])},
          {{.match = "block[0].linear", .layout = other},
           summa("block[1].linear", all[i]),
           {.match = "head", .layout = other}},
          {summa("block[0].linear", all[i]), {.match = "block[1].linear", .layout = other}, summa("head", all[i])}};
      for (std::size_t way = 0; way < ways.size(); ++way) {
        if (size() > 4 && way != i % ways.size()) continue;  // many ranks share few cores
        Plan plan = laid_out(training, ways[way]);
        if (i % 2 == 1) plan.overlap.panels = "none";
        const Trained ours = train_plan(training, plan, world, engine);
        const std::string what = fmt::format("rows {} replicas {} columns {}, way {}, M = {}", to_string(all[i].p0),
                                             to_string(all[i].p1), to_string(all[i].p2), way, micro_batches);
        is_exact ? expect_equal(ours, reference, what) : expect_same(ours, reference, what);
        if (HasFailure()) return;
      }
    }
  }
}

/// Products by panels; the embedding in the layout that the planner gives it.
std::vector<OperatorRule> rules_of(const Layout& grid, bool is_tied) {
  Layout embedding{.p0 = grid.p1, .p1 = grid.p2, .p2 = grid.p0};
  if (is_tied) std::swap(embedding.p1, embedding.p2);
  const Layout beside{
      .p0 = {grid.p0.in_node * grid.p1.in_node, grid.p0.nodes * grid.p1.nodes}, .p1 = grid.p2, .p2 = {}};
  return {{.match = "*", .layout = beside},
          {.match = "embedding", .layout = embedding},
          summa("*attn.qkv", grid),
          summa("*attn.proj", grid),
          summa("*mlp.*", grid),
          summa("head", grid)};
}

/// Several, with each dimension of the mesh in rows, in replicas and in columns: degrees repeat with a period of three.
std::vector<Layout> few(const std::vector<Layout>& grids) {
  std::vector<Layout> result;
  const std::size_t stride = grids.size() > 9 ? 4 : 1;
  for (std::size_t i = 0; i < grids.size(); i += stride) result.push_back(grids[i]);
  return result;
}

TEST_F(Summa, TransformersAreEqualUpToRounding) {
  for (const char* name : {"gpt", "llama"}) {
    for (const bool is_tied : {false, true}) {
      RealModel model = transformer(name);
      if (is_tied && model.options.name != "gpt") continue;
      model.options.tied_head = is_tied;
      Training training = real(model, 24);
      training.vocabulary = 120;
      training.steps = 2;
      const Trained reference = alone(training);
      for (const Layout& grid : few(grids())) {
        const Trained ours = train_plan(training, laid_out(training, rules_of(grid, is_tied)), world, engine);
        expect_same(ours, reference,
                    fmt::format("{}{} rows {} replicas {} columns {}", name, is_tied ? " tied" : "", to_string(grid.p0),
                                to_string(grid.p1), to_string(grid.p2)));
      }
    }
  }
}

/// Convolutions data parallel; dense layers by panels, or some of them.
TEST_F(Summa, DenseLayersBehindConvolutions) {
  const RealModel vgg{
      "vgg", {.name = "vgg-nano", .hidden = 48, .dropout = 0.25, .num_classes = 24, .widths = {8, 16, 16, 24, 48}}};
  Training training = real(vgg, 24);
  training.classes = 24;
  training.steps = 2;
  training.learning_rate = 0.05;
  const Trained reference = alone(training);
  for (const Layout& grid_of_dense : few(grids())) {
    std::vector<OperatorRule> rules = {{.match = "*", .layout = Layout{.p0 = grid(), .p1 = {}, .p2 = {}}}};
    for (const char* name : {"classifier.fc1", "classifier.fc2", "classifier.fc3"}) {
      rules.push_back(summa(name, grid_of_dense));
    }
    expect_same(train_plan(training, laid_out(training, rules), world, engine), reference,
                fmt::format("rows {} columns {}", to_string(grid_of_dense.p0), to_string(grid_of_dense.p2)));
    rules.back() = {.match = "classifier.fc3", .layout = grid_of_dense};
    expect_same(train_plan(training, laid_out(training, rules), world, engine), reference, "the last one local");
  }
}

/// Neither recomputation nor sharded states change a bit; micro-batches, clipping and 16-bit numbers go along.
TEST_F(Summa, GoesWithAccumulationRecomputationShardedStatesClippingAndBf16) {
  // Of those that there are, one that cuts three ways, and one whose replicas do not divide its rows.
  const std::vector<Layout> all = grids();
  const auto best = [&](auto&& rank_of) { return *std::ranges::max_element(all, {}, rank_of); };
  const Layout wide = best([](const Layout& g) {
    return (g.p0.total() > 1 ? 2 : 0) + (g.p2.total() > 1 ? 2 : 0) + (g.p1.total() > 1 ? 1 : 0);
  });
  const Layout deep = best([](const Layout& g) {
    const bool divides = g.p0.total() % g.p1.total() == 0;
    return (divides ? 0 : 4) + (g.p2.total() > 1 ? 2 : 0) + (g.p0.total() > 1 ? 1 : 0);
  });
  EXPECT_EQ(deep.p1.total() > 1, size() % 2 == 0);
  // Many ranks share few cores: there one model sees all of it together.
  const bool is_crowded = size() > 2;
  for (const char* name : {"gpt", "llama"}) {
    if (is_crowded && name != std::string_view("gpt")) continue;
    for (const Layout& grid_of_all : {wide, deep}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (dtype == DType::bf16 && name != std::string_view("gpt")) continue;
        Training training = real(transformer(name), 48);
        training.vocabulary = 120;
        training.steps = 2;
        training.plan.schedule.micro_batches = 2;
        training.plan.dtypes = {dtype, dtype};
        const std::vector<OperatorRule> rules = rules_of(grid_of_all, false);
        std::vector<OperatorRule> sharded = rules;
        for (OperatorRule& rule : sharded) rule.state = StateFactors{.p = {}, .g = {}, .os = grid_of_all.p1};
        const Trained reference = alone(training);
        const Trained plain = train_plan(training, laid_out(training, rules), world, engine);
        if (dtype == DType::f32) {
          expect_same(plain, reference, name);
          // Of every part of a gradient its copies together count one in the norm, whose sum is rounded elsewhere.
          Training clipped = training;
          clipped.plan.optimizer.clip_norm = 0.5;
          const Trained clipped_alone = alone(clipped);
          for (const bool shards : {false, true}) {
            const Plan plan = laid_out(clipped, shards ? sharded : rules);
            expect_same(train_plan(clipped, plan, world, engine), clipped_alone, name);
          }
        } else {
          for (std::size_t i = 0; i < plain.losses.size(); ++i) {
            EXPECT_NEAR(plain.losses[i], reference.losses[i], 0.01 * reference.losses[i]) << name << " step " << i;
          }
        }
        for (const bool shards : {false, true}) {
          for (const Recompute recompute : {Recompute::none, Recompute::block}) {
            if (is_crowded && (!shards || recompute == Recompute::none)) continue;
            Plan plan = laid_out(training, shards ? sharded : rules);
            plan.recompute = recompute;
            plan.optimizer.spread = "all_gather";
            const Trained ours = train_plan(training, plan, world, engine);
            for (const auto& [parameter, values] : plain.parameters) {
              EXPECT_EQ(ours.parameters.at(parameter), values) << parameter << ", " << name;
            }
            EXPECT_EQ(ours.losses, plain.losses) << name;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_summa
