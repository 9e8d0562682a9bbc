/// @file
/// Products by blocks on a ring train what one rank trains: rings of all degrees, by columns and by rows, on exact
/// inputs with ==, among products in other layouts too; the mode on real models within rounding, with accumulation,
/// recomputation, sub-batches, stages, bf16 and sharded states.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"
#include "planners/layouts/candidates.hpp"
#include "support/deep.hpp"

namespace strata::test_ring_products {
namespace {

class RingProducts : public LaidOut {
 protected:
  /// Layouts that gather, or scatter, and not both.
  std::vector<Layout> rings() const {
    std::vector<Layout> result;
    for (const Layout& layout : all_layouts(grid())) {
      if (layout.p1.total() == 1 || layout.p2.total() == 1) result.push_back(layout);
    }
    return result;
  }
};

OperatorRule ring(const std::string& match, const Layout& layout, int directions = 1) {
  return {.match = match, .layout = layout, .algorithm = MatmulAlgorithm::ring, .directions = directions};
}

/// One direction, both, and both kinds in one model.
constexpr std::array<std::array<int, 3>, 3> ways_round = {{{1, 1, 1}, {2, 2, 2}, {2, 1, 2}}};

void expect_equal(const Trained& ours, const Trained& reference, const std::string& what) {
  for (const auto& [parameter, values] : ours.parameters) {
    EXPECT_EQ(values, reference.parameters.at(parameter)) << parameter << ", " << what;
  }
  EXPECT_EQ(ours.last_step.bytes_sent, predicted_bytes(ours.program)) << what;
}

TEST_F(RingProducts, EveryPairOfRingsIsEqualToOneRank) {
  const bool is_exact = 8 % size() == 0;
  for (const int micro_batches : {1, 2}) {
    const Training training = is_exact ? exact_for_layouts(micro_batches) : rounded_for_layouts(micro_batches);
    const Trained reference = alone(training);
    const std::vector<Layout> all = rings();
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < all.size(); ++j) {
        if ((micro_batches > 1 || size() > 4) && (i + j) % 5 != 0) continue;
        const Layout& last = all[(i + 3 * j) % all.size()];
        // Rings alike, and local products before and behind them.
        const auto& directions = ways_round[(i + j / 3) % ways_round.size()];
        std::vector<OperatorRule> rules = {ring("block[0].linear", all[i], directions[0]),
                                           ring("block[1].linear", all[j], directions[1]),
                                           ring("head", last, directions[2])};
        if ((i + j) % 3 == 1) rules[1] = {.match = "block[1].linear", .layout = all[j]};
        if ((i + j) % 3 == 2) rules[2] = {.match = "head", .layout = last};
        const Trained ours = train_plan(training, laid_out(training, rules), world, engine);
        const std::string what = fmt::format("({}), ({}), ({}), M = {}, way {}", to_string(all[i]), to_string(all[j]),
                                             to_string(last), micro_batches, (i + j) % 3);
        is_exact ? expect_equal(ours, reference, what) : expect_same(ours, reference, what);
        if (HasFailure()) return;
      }
    }
  }
}

/// 7 inputs, 12 and 10 units, 4 classes: short blocks and, on many ranks, blocks without features.
TEST_F(RingProducts, UnequalBlocksAreExactOnExactInputs) {
  int num_trained = 0;
  for (const int micro_batches : {1, 2}) {
    const Training training = exact(micro_batches, {7, 12, 10, 4});
    const Trained reference = alone(training);
    const std::vector<Layout> all = rings();
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < all.size(); ++j) {
        if ((micro_batches > 1 || all.size() > 9) && (i + j) % 4 != 0) continue;
        const Layout& last = all[(i + 3 * j) % all.size()];
        for (const auto& directions : ways_round) {
          const Plan plan =
              laid_out(training, {ring("block[0].linear", all[i], directions[0]),
                                  ring("block[1].linear", all[j], directions[1]), ring("head", last, directions[2])});
          const Trained ours = train_plan(training, plan, world, engine);
          expect_equal(ours, reference,
                       fmt::format("({}), ({}), ({}), M = {}, directions {}", to_string(all[i]), to_string(all[j]),
                                   to_string(last), micro_batches, fmt::join(directions, ", ")));
          ++num_trained;
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(num_trained, 9);
}

/// Trained by the mode, with all ranks, or those of a node, as a ring.
Trained by_mode(Training training, const Mesh& mesh, bool in_node, comm::World& world, comm::Engine& engine,
                const std::map<std::string, OptionValue>& options = {}) {
  training.nodes = mesh.nodes;
  training.options = options;
  training.options["tensor"] = to_string(in_node ? Factor{mesh.ranks_per_node, 1} : whole_grid(mesh));
  training.options["cost"] = std::string("volume");
  return train(training, "decomposed", world.size(), world, engine);
}

TEST_F(RingProducts, ModelsByTheModeAreEqualUpToRounding) {
  const RealModel vgg{
      "vgg", {.name = "vgg-nano", .hidden = 48, .dropout = 0.25, .num_classes = 24, .widths = {8, 16, 16, 24, 48}}};
  for (const bool is_tied : {false, true}) {
    for (RealModel model : {transformer("gpt"), transformer("llama"), vgg}) {
      if (is_tied && model.options.name != "gpt") continue;
      if (is_tied) model.options.tied_head = true;
      Training training = real(model, 24);
      if (model.options.name == "vgg-nano") {
        training.classes = 24;
        training.learning_rate = 0.05;
      } else {
        training.vocabulary = 120;
      }
      training.steps = 2;
      const Trained reference = alone(training);
      for (const bool in_node : {false, true}) {
        const std::int64_t directions = in_node == is_tied ? 1 : 2;
        const std::string what = fmt::format("{}{}, {}, directions = {}", model.name, is_tied ? " tied" : "",
                                             in_node ? "node" : "all", directions);
        const Trained ours = by_mode(training, mesh(), in_node, world, engine, {{"directions", directions}});
        expect_same(ours, reference, what);
        EXPECT_EQ(ours.last_step.bytes_sent, predicted_bytes(ours.program)) << what;
        if (HasFailure()) return;
      }
    }
  }
}

/// Neither recomputation, nor sub-batches, nor stages, nor sharded states change what is learned; micro-batches,
/// clipping and 16-bit numbers go along.
TEST_F(RingProducts, GoWithAccumulationRecomputationSubBatchesStagesShardedStatesAndBf16) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (is_sanitized() && dtype == DType::f32) continue;
    Training training = real(transformer("gpt"), 48);
    training.vocabulary = 120;
    training.steps = 2;
    training.plan.schedule.micro_batches = 2;
    training.plan.dtypes = {dtype, dtype};
    training.plan.optimizer.clip_norm = 0.5;
    const Trained reference = alone(training);
    const auto expect_learned = [&](const Trained& ours, const std::string& what) {
      EXPECT_EQ(ours.last_step.bytes_sent, predicted_bytes(ours.program)) << what;
      if (dtype == DType::f32) return expect_same(ours, reference, what);
      for (std::size_t i = 0; i < ours.losses.size(); ++i) {
        EXPECT_NEAR(ours.losses[i], reference.losses[i], 0.01 * reference.losses[i]) << what << " step " << i;
      }
    };
    const Trained plain = by_mode(training, mesh(), true, world, engine);
    expect_learned(plain, "plain");
    expect_learned(by_mode(training, mesh(), false, world, engine, {{"directions", std::int64_t{2}}}), "both ways");
    for (const Recompute recompute : {Recompute::block, Recompute::whole_block, Recompute::after_communication}) {
      Training again = training;
      again.plan.recompute = recompute;
      const Trained ours = by_mode(again, mesh(), true, world, engine);
      for (const auto& [parameter, values] : plain.parameters) {
        EXPECT_EQ(ours.parameters.at(parameter), values) << parameter << ", recompute = " << to_string(recompute);
      }
      again.plan.schedule.sub_batches = 2;
      expect_learned(by_mode(again, mesh(), true, world, engine), "sub-batches");
      again.plan.schedule.cross_pass = true;
      expect_learned(by_mode(again, mesh(), true, world, engine), "crossed passes");
    }
    expect_learned(by_mode(training, mesh(), true, world, engine, {{"zero", std::string("zero1")}}), "zero1");
    if (size() % 4 == 0) {
      Training staged = training;
      staged.nodes = mesh().nodes;
      staged.options = {{"tensor", fmt::format("{}x1", mesh().ranks_per_node)},
                        {"stages", std::int64_t{2}},
                        {"cost", std::string("volume")}};
      expect_learned(train(staged, "decomposed", size(), world, engine), "stages");
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace strata::test_ring_products
