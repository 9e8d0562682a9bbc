/// @file
/// What ranks do not divide: samples, features, heads and vocabulary of which the last ranks have fewer, or none, are
/// trained as one rank trains them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"
#include "planners/layouts/candidates.hpp"
#include "support/deep.hpp"

namespace strata::test_uneven {
namespace {

class Uneven : public LaidOut {
 protected:
  /// Ranks that hold equal parts of a parameter together hold it some whole number of times.
  bool holds_unequal_parts(const Program& program, const ModelGraph& graph) const {
    return std::ranges::any_of(program.buffers, [&](const Buffer& buffer) {
      const auto whole = std::ranges::find(graph.parameters, buffer.parameter, &Parameter::name);
      return whole != graph.parameters.end() && size() * buffer.num_elements % whole->num_elements() != 0;
    });
  }
  static ModelOptions gpt(std::int64_t vocabulary, std::int64_t heads, bool is_tied) {
    return {.name = "gpt",
            .layers = 2,
            .hidden = 9 * heads,
            .heads = heads,
            .ffn_hidden = 50,
            .vocabulary = vocabulary,
            .sequence_length = 9,
            .dropout = 0.1,
            .tied_head = is_tied};
  }
};

/// Sums of eighths have no rounding, in whatever order: 8 samples over 3 ranks are 3, 3 and 2, and of 2 micro-batches
/// of 4 the last of 8 ranks have none.
TEST_F(Uneven, SamplesAreExactOnExactInputs) {
  for (const int micro_batches : {1, 2}) {
    Training training = exact(micro_batches);
    if (size() % 2 == 0) training.plan.global_batch /= 2;
    const Trained reference = alone(training);
    for (const char* mode : {"ddp", "zero2", "zero3", "osdp"}) {
      const Trained ours = train(training, mode, size(), world, engine);
      for (const auto& [name, values] : reference.parameters) {
        EXPECT_EQ(ours.parameters.at(name), values) << name << ", " << mode << ", micro-batches " << micro_batches;
      }
      EXPECT_EQ(ours.losses, reference.losses) << mode;
    }
  }
}

/// Five samples: with one a rank more than three ranks leave none for some. Convolutions, attention and dropout.
TEST_F(Uneven, SamplesOfRealModels) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 5);
    training.steps = 2;
    training.learning_rate = 0.02;
    const Trained reference = alone(training);
    for (const char* mode : {"ddp", "zero3"}) {
      const Trained ours = train(training, mode, size(), world, engine);
      expect_same(ours, reference, fmt::format("{} by {}", model.name, mode));
    }
  }
}

/// Every degree of every layer, local and by panels, of sizes that none of them divides: 7 inputs, 12 and 10 hidden
/// units, 4 classes, 8 samples. Sums of eighths again.
TEST_F(Uneven, EveryPairOfDegreesIsExactOnExactInputs) {
  const std::vector<Layout> layouts = all_layouts(grid());
  for (const int micro_batches : {1, 2}) {
    const Training training = exact(micro_batches, {7, 12, 10, 4});
    const Trained reference = alone(training);
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      for (std::size_t j = 0; j < layouts.size(); ++j) {
        const bool is_left_out = !is_deep() && (i + j) % (layouts.size() > 9 ? 9 : 3) != 0;
        if (is_left_out || (micro_batches > 1 && i != j)) continue;
        const Layout& last = layouts[(i + 3 * j) % layouts.size()];
        // All local, the middle one with whole sums, or the others by panels.
        for (const auto& [algorithm, sum] : {std::pair{MatmulAlgorithm::local, PartialSums::scatter},
                                             {MatmulAlgorithm::local, PartialSums::all_reduce},
                                             {MatmulAlgorithm::summa, PartialSums::all_reduce}}) {
          const Plan plan =
              laid_out(training, {{.match = "block[0].linear", .layout = layouts[i], .algorithm = algorithm},
                                  {.match = "block[1].linear", .layout = layouts[j], .sum = sum},
                                  {.match = "head", .layout = last, .algorithm = algorithm}});
          const Trained ours = train_plan(training, plan, world, engine);
          const std::string what =
              fmt::format("({}), ({}) {}, ({}), {}, M = {}", to_string(layouts[i]), to_string(layouts[j]),
                          to_string(sum), to_string(last), to_string(algorithm), micro_batches);
          for (const auto& [parameter, values] : ours.parameters) {
            EXPECT_EQ(values, reference.parameters.at(parameter)) << parameter << ", " << what;
          }
          EXPECT_NEAR(ours.losses.front(), reference.losses.front(), 1e-6F * reference.losses.front()) << what;
          EXPECT_EQ(ours.last_step.bytes_sent, predicted_bytes(ours.program)) << what;
          if (HasFailure()) return;
        }
      }
    }
  }
}

/// 10 classes, 301 words, 5 heads and 5 samples, in degrees that cut them and in those that the planner likes best.
/// Norms, attention with dropout, a tied table, gradients clipped by the norm of all parts.
TEST_F(Uneven, ModesThatCutFeatures) {
  const Factor in_node{mesh().ranks_per_node, 1}, across{1, mesh().nodes};
  struct Way {
    const char* mode;
    std::map<std::string, OptionValue> options;
  };
  const std::vector<Way> ways = {
      {"megatron", {{"tensor", to_string(in_node)}}},
      {"megatron", {{"tensor", to_string(in_node)}, {"sum", std::string("all_reduce")}}},
      {"decomposed", {{"tensor", to_string(in_node)}}},
      {"summa", {{"rows", to_string(across)}}},
      {"autoddl", {{"layout", fmt::format("{},{},1x1", to_string(across), to_string(in_node))}}},
      {"autoddl", {}}};
  const std::array models = {RealModel{"vgg", {.name = "vgg-nano", .dropout = 0.25}},
                             RealModel{"gpt", gpt(301, 5, false)},
                             RealModel{"gpt with a tied table", gpt(301, 5, true)}};
  for (const RealModel& model : models) {
    Training training = real(model, 5);
    training.vocabulary = 301;
    training.steps = 2;
    training.learning_rate = 0.02;
    training.plan.optimizer.clip_norm = 0.5;
    training.nodes = mesh().nodes;
    const Trained reference = alone(training);
    for (const Way& way : ways) {
      // The head of a tied table holds it transposed: one layout for all layers does not.
      if (model.options.tied_head && way.options.contains("layout")) continue;
      const std::string what = fmt::format("{} by {}", model.name, way.mode);
      training.options = way.options;
      training.options["cost"] = std::string("volume");
      const Trained ours = train(training, way.mode, size(), world, engine);
      expect_same(ours, reference, what);
      EXPECT_EQ(ours.last_step.bytes_sent, predicted_bytes(ours.program)) << what;
      // 10 classes are even on two ranks.
      const bool must_cut = !way.options.empty() && model.options.name == "gpt";
      EXPECT_TRUE(!must_cut || holds_unequal_parts(ours.program, training.graph)) << what;
      if (HasFailure()) return;
    }
  }
}

/// 2 heads of 3 features, 5 words, 7 units between and 3 samples: on many ranks the last ones have nothing of norms,
/// attention, table, products or samples.
TEST_F(Uneven, RanksWithoutAnyPart) {
  const AtomicAxes axes(mesh());
  const RealModel few{"gpt",
                      {.name = "gpt",
                       .layers = 2,
                       .hidden = 6,
                       .heads = 2,
                       .ffn_hidden = 7,
                       .vocabulary = 5,
                       .sequence_length = 9,
                       .dropout = 0.1}};
  Training training = real(few, 3);
  training.vocabulary = 5;
  training.steps = 2;
  const Trained reference = alone(training);
  const int p = size(), half = p % 2 == 0 ? p / 2 : p;
  const std::array all = {TransformerDegrees{1, p, p, 1, p, 1, p}, TransformerDegrees{1, 1, p, p, 1, p, 1},
                          TransformerDegrees{half, 1, p / half, 1, p / half, 1, p / half},
                          TransformerDegrees{1, half, half, half, half, half, half}};
  for (const TransformerDegrees& degrees : all) {
    for (const PartialSums sum : {PartialSums::scatter, PartialSums::all_reduce}) {
      std::vector<OperatorRule> rules = rules_of(axes, degrees, "gpt");
      rules.push_back({.match = "*", .sum = sum});
      const Trained ours = train_plan(training, laid_out(training, rules), world, engine);
      const std::string what =
          fmt::format("p0 = {}, p1 = {}, {}, sum = {}", degrees.p0, degrees.embedding, degrees.qkv, to_string(sum));
      expect_same(ours, reference, what);
      EXPECT_EQ(ours.last_step.bytes_sent, predicted_bytes(ours.program)) << what;
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace strata::test_uneven
