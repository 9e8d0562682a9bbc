/// @file
/// A pipeline of S equal stages with free messages takes (M + S - 1) (f + b) a step, fill-drain and
/// one-forward-one-backward alike, and (M + (S - 1)/v) (f + b) with v interleaved stages a rank: Huang et al., "GPipe",
/// 2019; Narayanan et al., SC 2021, sec. 2.2.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "sim/simulate.hpp"
#include "support/made_up_order.hpp"
#include "support/no_workspace.hpp"

namespace strata::test_pipeline_bubble {
namespace {

constexpr double forward_seconds = 1.0;
constexpr double backward_seconds = 2.0;
constexpr int num_blocks = 8;

/// Every stage's pass takes the same, all of it in its first kernel, because a gradient leaves before the stage's last
/// weight gradients are done; nothing else takes anything.
class EqualStages final : public CostModel {
 public:
  /// @param chunks stages of each rank, which take those seconds together.
  explicit EqualStages(int num_stages, int chunks = 1) : CostModel(1), num_stages_(num_stages), chunks_(chunks) {}
  CostSource source() const override { return CostSource::paper; }
  std::string description() const override { return "equal stages"; }
  Cost kernel(const Program& program, const Instruction& in) const override {
    if (in.name == "input") return {0.0, Basis::formula};
    for (auto i = &in - program.body.data(); i-- > 0;) {
      const Instruction& before = program.body[static_cast<std::size_t>(i)];
      if (before.is_collective() || before.name == "input" || before.phase == Phase::metrics) continue;
      const bool is_of_same_pass =
          before.phase == in.phase && before.micro_batch == in.micro_batch && stage_of(before) == stage_of(in);
      if (is_of_same_pass) return {0.0, Basis::formula};
      break;
    }
    const double of_rank = in.phase == Phase::forward    ? forward_seconds
                           : in.phase == Phase::backward ? backward_seconds
                                                         : 0.0;
    return {of_rank / chunks_, Basis::formula};
  }
  CollectiveCost collective(Collective, std::int64_t, const Placement&) const override { return {}; }

 private:
  int stage_of(const Instruction& in) const {
    constexpr std::string_view block = "block[";
    if (in.name.starts_with(block)) return std::stoi(in.name.substr(block.size())) * num_stages_ / num_blocks;
    return in.name.starts_with("embedding") || in.name.starts_with("position") ? 0 : num_stages_ - 1;
  }

  int num_stages_;
  int chunks_;
};

/// One sample a micro-batch.
Plan pipeline(const char* mode, const ModelGraph& graph, int ranks, int micro_batches, std::int64_t chunks = 1) {
  const Planner& planner = find_planner(mode);
  Plan base;
  base.strategy = mode;
  base.mesh.ranks_per_node = ranks;
  base.global_batch = micro_batches;
  base.schedule.micro_batches = micro_batches;
  const Cluster cluster;
  std::map<std::string, OptionValue> options;
  if (chunks > 1) options.emplace("chunks", chunks);
  for (const OptionRow& row : planner.options()) options.emplace(row.name, row.default_value);
  return planner.plan({.graph = graph, .cluster = cluster, .base = base, .options = options});
}

double longest_step(const std::vector<Program>& programs, int chunks = 1) {
  double longest = 0.0;
  const auto ranks = static_cast<int>(programs.size());
  const SimulationResult result = simulate(unfolded(programs, ranks), EqualStages(ranks * chunks, chunks));
  for (const SimulatedStep& s : result.steps[0]) longest = std::max(longest, s.step_seconds);
  return longest;
}

TEST(PipelineBubble, IsStagesMinusOnePasses) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = num_blocks});
  for (const char* mode : {"gpipe", "1f1b"}) {
    for (const int stages : {1, 2, 3, 4, 8}) {
      for (const int micro_batches : {1, 2, 5, 8, 16}) {
        const Plan plan = pipeline(mode, graph, stages, micro_batches);
        std::vector<Program> programs;
        for (int rank = 0; rank < stages; ++rank) programs.push_back(lower(plan, graph, rank, no_workspace));
        EXPECT_NEAR(longest_step(programs), (micro_batches + stages - 1) * (forward_seconds + backward_seconds), 1e-9)
            << mode << ", " << stages << " stages, " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST(PipelineBubble, OfInterleavedStagesIsShorterByTheirNumberARank) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = num_blocks});
  for (const auto& [ranks, chunks] : {std::pair{2, 2}, {2, 4}, {4, 2}}) {
    for (const int rounds : {1, 2, 4}) {
      const int micro_batches = rounds * ranks;
      const Plan plan = pipeline("interleaved", graph, ranks, micro_batches, chunks);
      std::vector<Program> programs;
      for (int rank = 0; rank < ranks; ++rank) programs.push_back(lower(plan, graph, rank, no_workspace));
      EXPECT_NEAR(longest_step(programs, chunks),
                  (micro_batches + (ranks - 1.0) / chunks) * (forward_seconds + backward_seconds), 1e-9)
          << ranks << " ranks of " << chunks << ", " << micro_batches << " micro-batches";
    }
  }
}

/// The first steps fill the ranks and the last ones drain them; between these nobody waits, messages being free.
/// A tied table's two ends are updated together, so the last stage waits for the first one's backward.
TEST(PipelineBubble, IsNoneWithoutAFlush) {
  for (const bool tied : {false, true}) {
    const ModelGraph graph = build_model({.name = "gpt-nano", .layers = num_blocks, .tied_head = tied});
    for (const int stages : {1, 2, 4}) {
      for (const int micro_batches : {stages, 2 * stages, 8}) {
        const Plan plan = pipeline("2bw", graph, stages, micro_batches);
        std::vector<Program> programs;
        for (int rank = 0; rank < stages; ++rank) programs.push_back(lower(plan, graph, rank, no_workspace));
        const SimulationResult result = simulate(unfolded(programs, stages), EqualStages(stages), {.num_steps = 12});
        double of_four_steps = 0.0;
        for (std::size_t step = 4; step < 8; ++step) of_four_steps += result.steps[step].back().step_seconds;
        const double waited = tied ? (stages - 1) * backward_seconds : 0.0;
        EXPECT_NEAR(of_four_steps, 4 * (micro_batches * (forward_seconds + backward_seconds) + waited), 1e-9)
            << stages << " stages, " << micro_batches << " micro-batches, tied: " << tied;
      }
    }
  }
}

/// Counted by hand on two stages, f = 1, b = 2:
///   M = 2   0: F0 0-1, F1 1-2, B0 5-7, B1 7-9                                        as gpipe's 3 (f + b)
///           1: F0 1-2, F1 2-3, B0 3-5, B1 5-7
///   M = 4   0: F0 0-1, F1 1-2, F2 2-3, B0 5-7, F3 7-8, B1 11-13, B2 13-15, B3 15-17    two more than 5 (f + b): stage
///   1
///           1: F0 1-2, F1 2-3, B0 3-5, F2 5-6, F3 8-9, B1 9-11, B2 11-13, B3 13-15     waits for F3, from 6 to 8
TEST(PipelineBubble, OfAMadeUpOrderIsTheOneCountedByHand) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = num_blocks});
  for (const auto& [micro_batches, seconds] : {std::pair{2, 9.0}, {4, 17.0}}) {
    const Plan plan = pipeline("gpipe", graph, 2, micro_batches);
    std::vector<Program> programs;
    for (int rank = 0; rank < 2; ++rank) {
      programs.push_back(lower(plan, graph, rank, no_workspace, by_stage(two_forwards_one_backward)));
    }
    EXPECT_NEAR(longest_step(programs), seconds, 1e-9) << micro_batches;
  }
}

}  // namespace
}  // namespace strata::test_pipeline_bubble
