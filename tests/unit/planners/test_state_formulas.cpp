/// @file
/// The formulas of the modes' file comments for equal layers of n elements, w of them read by backward, with one layer
/// a bucket (U = g n/s_p) and at least two micro-batches, against what Programs hold, to the byte. Beside its shards
/// (AMSP's cΦ/s_p + gΦ/s_g + kΦ/s_os) a rank has for a while
///     s_p = s_g = s_os > 1:      c (w or 2w) + g (n or 2n)     2: fetched ahead; reduce-scatters overlapped
///     s_p = 1, s_g = s_os > 1:   U or 2U                       2: all-reduces overlapped
///     s_p = s_g = 1, scattered:  U/s_os

#include <gtest/gtest.h>

#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "sharded.hpp"
#include "support/held_bytes.hpp"
#include "support/no_workspace.hpp"

namespace strata::test_state_formulas {
namespace {

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
  return program_holds(plan, graph);
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
}  // namespace strata::test_state_formulas
