/// @file
/// States, gradients and what is gathered or reduced, kernel by kernel, against what the Programs hold: to the byte,
/// for every legal triple of factors, all overlap levels and ways to bring gradients to optimizer states; and the
/// closed formulas of equal layers.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "planners/states/memory.hpp"
#include "planners/states/mode.hpp"
#include "sharded.hpp"
#include "support/held_bytes.hpp"
#include "support/optimizer_ways.hpp"

namespace strata {
namespace {

std::int64_t no_workspace(const Program&, const Instruction&) { return 0; }

/// Of the fullest rank.
std::int64_t program_holds(const Plan& plan, const ModelGraph& graph) {
  std::int64_t most = 0;
  for (const int rank : rank_classes(plan, graph, {}).representatives) {
    const Program program = lower(plan, graph, rank, no_workspace);
    most = std::max(most, most_held(program, {Category::parameter, Category::optimizer, Category::gradient,
                                              Category::communication}));
  }
  return most;
}

struct Sweep {
  Factor grid;
  std::vector<int> micro_batches;
  std::vector<const char*> levels;
  std::vector<Recompute> recompute;
  std::int64_t bucket_bytes = 0;
};

std::string name(const Plan& plan, const char* level) {
  return fmt::format("{}, {}, {}, {} micro-batches, overlap {}, recompute {} {}, {}", plan.strategy,
                     to_string(*plan.operators.front().state), plan.optimizer.sharding, plan.schedule.micro_batches,
                     level, to_string(plan.recompute), plan.gathered_after_recompute, plan.optimizer.gradients);
}

void expect_equal(const ModelGraph& graph, const Sweep& sweep) {
  int num_dealt = 0, num_equal = 0;
  for (const int micro_batches : sweep.micro_batches) {
    for (const char* level : sweep.levels) {
      for (const Recompute recompute : sweep.recompute) {
        for (const Way& way : ways) {
          Plan plan = asked_on(sweep.grid, micro_batches);
          plan.strategy = graph.name;
          plan.mesh.axes = {{"data", sweep.grid.total()}};
          plan.overlap.bucket_bytes = sweep.bucket_bytes;
          set_overlap(plan, level);
          plan.recompute = recompute;
          plan.gathered_after_recompute = way.gradients == std::string_view("reduce_scatter") ? "regather" : "keep";
          set_way(plan, way);
          const StateMemory memory(graph, plan);
          for (const StateFactors& state : legal_states(sweep.grid)) {
            plan.operators = {{.match = "*", .state = state}};
            const std::int64_t counted = memory.states_and_transfers(state), held = program_holds(plan, graph);
            if (way.sharding == std::string_view("intra_tensor")) {
              EXPECT_EQ(counted, held) << name(plan, level);
            } else {
              // Whoever updates nothing of a bucket gives it up before the others do.
              EXPECT_GE(counted, held) << name(plan, level);
              num_equal += counted == held ? 1 : 0;
              ++num_dealt;
            }
          }
        }
      }
    }
  }
  EXPECT_GE(num_equal, num_dealt * 19 / 20) << graph.name;
}

const std::vector<const char*> levels = {"none", "gather", "full", "deepspeed"};

TEST(StepMemory, IsTheProgramsOfAnMlp) {
  const ModelGraph uneven = build_model({.name = "mlp", .widths = {24, 36, 50, 17, 33, 10}});
  const ModelGraph even = build_model({.name = "mlp", .widths = {64, 64, 64, 64, 64, 64, 64}});
  for (const ModelGraph* graph : {&even, &uneven}) {
    expect_equal(*graph, {{4, 2}, {1, 2, 3, 4}, levels, {Recompute::none, Recompute::block}, 3000});
    expect_equal(*graph, {{2, 1}, {1, 3}, levels, {Recompute::none}, 0});
    expect_equal(*graph, {{2, 2}, {1, 3}, levels, {Recompute::none}, 20000});
  }
}

TEST(StepMemory, IsTheProgramsOfTransformers) {
  for (const char* model : {"gpt-nano", "llama-nano"}) {
    const ModelGraph graph = build_model({.name = model});
    expect_equal(graph, {{2, 2}, {1, 3}, levels, {Recompute::none, Recompute::block}, 20000});
  }
}

TEST(StepMemory, IsTheProgramsOfAConvolutionalNetwork) {
  const ModelGraph graph = build_model({.name = "vgg11"});
  expect_equal(graph, {{2, 1}, {1, 3}, levels, {Recompute::none, Recompute::block}, 20000});
}

// ---- The formulas of the modes' file comments

constexpr std::int64_t c = 2, g = 2, k = 12;  ///< bytes an element: bf16 parameters and gradients, f32 states

/// L equal layers of w weights and n elements in all, each a block but the last.
struct EqualLayers {
  std::int64_t num_layers = 8, w = 64 * 64, n = w + 64;
  std::int64_t all() const { return num_layers * n; }
  /// With dropout a block has something to compute again.
  ModelGraph graph() const {
    ModelOptions options{.name = "mlp",
                         .widths = std::vector<std::int64_t>(static_cast<std::size_t>(num_layers) + 1, 64)};
    options.dropout = 0.1;
    return build_model(options);
  }
};

struct Level {
  const char* word;
  std::int64_t layers_gathered, gradients, buckets;  ///< at once, in backward
};
constexpr Level formula_levels[] = {{"none", 1, 1, 1}, {"gather", 2, 2, 1}, {"full", 2, 2, 2}, {"deepspeed", 2, 1, 2}};

std::int64_t bytes_of(const std::string& mode, const ModelGraph& graph, Plan base, const Level& level,
                      std::map<std::string, OptionValue> options) {
  options["overlap"] = std::string(level.word);
  const Plan plan = planned(mode, graph, std::move(base), std::move(options));
  const std::int64_t held = program_holds(plan, graph);
  EXPECT_EQ(StateMemory(graph, plan).states_and_transfers(state_of(plan)), held) << mode << " " << level.word;
  return held;
}

class Formula : public testing::TestWithParam<Factor> {
 protected:
  EqualLayers layers;
  ModelGraph graph = layers.graph();
  Factor grid = GetParam();
  std::int64_t num_ranks = grid.total(), all = layers.all(), n = layers.n, w = layers.w;
  std::int64_t bucket = g * n;  ///< U: a layer
  Plan base(int micro_batches, Recompute recompute, std::int64_t bucket_bytes) const {
    Plan plan = asked_on(grid, micro_batches);
    plan.recompute = recompute;
    plan.overlap.bucket_bytes = bucket_bytes;
    return plan;
  }
};

TEST_P(Formula, Zero1) {
  for (const Level& level : formula_levels) {
    for (const int m : {1, 2, 3}) {
      const auto bytes = [&](const char* gradients) {
        return bytes_of("zero1", graph, base(m, Recompute::none, bucket), level,
                        {{"gradients", std::string(gradients)}});
      };
      const bool comes_and_goes = m == 1 && level.buckets == 2;
      const std::int64_t scattered =
          comes_and_goes ? g * all / num_ranks + 2 * bucket - bucket / num_ranks : g * all + bucket / num_ranks;
      EXPECT_EQ(bytes("all_reduce"), c * all + g * all + k * all / num_ranks) << level.word << m;
      EXPECT_EQ(bytes("reduce_scatter"), c * all + k * all / num_ranks + scattered) << level.word << m;
    }
  }
}

TEST_P(Formula, Zero2) {
  for (const Level& level : formula_levels) {
    for (const int m : {1, 2, 3}) {
      for (const char* gradients : {"all_reduce", "reduce_scatter"}) {
        const std::int64_t not_yet = m == 1 && level.buckets == 2 ? bucket / num_ranks : 0;
        EXPECT_EQ(
            bytes_of("zero2", graph, base(m, Recompute::none, bucket), level, {{"gradients", std::string(gradients)}}),
            c * all + (g + k) * all / num_ranks + level.buckets * bucket - not_yet)
            << level.word << m << gradients;
      }
    }
  }
}

TEST_P(Formula, Zero3MicsAndZeropp) {
  for (const Level& level : formula_levels) {
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      const bool again = recompute == Recompute::block;
      // Ahead of it the next module's weight is gathered, or all of the next block.
      const std::int64_t gathered = c * (level.layers_gathered == 2 ? w + (again ? n : w) : w);
      const std::int64_t temporary = gathered + level.gradients * g * n;
      const auto bytes = [&](const char* mode, int m) {
        return bytes_of(mode, graph, base(m, recompute, 0), level, {});
      };
      for (const int m : {2, 3}) {
        EXPECT_EQ(bytes("zero3", m), (c + g + k) * all / num_ranks + temporary) << level.word << m << again;
        EXPECT_EQ(bytes("mics", m), (c + g + k) * all / grid.in_node + temporary) << level.word << m << again;
      }
      const std::int64_t read_again = again ? (layers.num_layers - 1) * n + w : (layers.num_layers - 1) * w;
      EXPECT_EQ(bytes("zeropp", 3), (c + g + k) * all / num_ranks + c * read_again / grid.in_node + temporary)
          << level.word << again;
      // With one micro-batch the gradients of layers that backward has not reached are not there.
      const std::int64_t held = bytes("zero3", 1);
      EXPECT_LE(held, (c + g + k) * all / num_ranks + temporary) << level.word;
      EXPECT_GE(held, (c + g + k) * all / num_ranks + temporary - 3 * g * n / num_ranks) << level.word;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, Formula, testing::Values(Factor{2, 1}, Factor{2, 2}, Factor{4, 2}));

}  // namespace
}  // namespace strata
