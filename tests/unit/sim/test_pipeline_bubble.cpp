/// @file
/// A pipeline of S equal stages with free messages takes (M + S - 1) (f + b) a step, fill-drain and
/// one-forward-one-backward alike: Huang et al., "GPipe", 2019; Narayanan et al., SC 2021, sec. 2.2.

#include <gtest/gtest.h>

#include <algorithm>

#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "sim/simulate.hpp"

namespace strata {
namespace {

constexpr double forward_seconds = 1.0;
constexpr double backward_seconds = 2.0;

/// Every stage's pass takes the same, all of it in its first kernel, because a gradient leaves before the stage's last
/// weight gradients are done; nothing else takes anything.
class EqualStages final : public CostModel {
 public:
  EqualStages() : CostModel(1) {}
  CostSource source() const override { return CostSource::paper; }
  std::string description() const override { return "equal stages"; }
  Cost kernel(const Program& program, const Instruction& in) const override {
    const auto first = std::ranges::find_if(program.body, [&](const Instruction& other) {
      return !other.is_collective() && other.name != "input" && other.phase == in.phase &&
             other.micro_batch == in.micro_batch;
    });
    if (first == program.body.end() || *first != in) return {0.0, Basis::formula};
    return {in.phase == Phase::forward    ? forward_seconds
            : in.phase == Phase::backward ? backward_seconds
                                          : 0.0,
            Basis::formula};
  }
  CollectiveCost collective(Collective, std::int64_t, const Placement&) const override { return {}; }
};

TEST(PipelineBubble, IsStagesMinusOnePasses) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 8});
  for (const char* mode : {"gpipe", "1f1b"}) {
    for (const int stages : {1, 2, 3, 4, 8}) {
      for (const int micro_batches : {1, 2, 5, 8, 16}) {
        const Planner& planner = find_planner(mode);
        Plan base;
        base.strategy = mode;
        base.mesh.ranks_per_node = stages;
        base.global_batch = micro_batches;
        base.schedule.micro_batches = micro_batches;
        const Cluster cluster;
        std::map<std::string, OptionValue> options;
        for (const OptionRow& row : planner.options()) options.emplace(row.name, row.default_value);
        const Plan plan = planner.plan({.graph = graph, .cluster = cluster, .base = base, .options = options});
        std::vector<Program> programs;
        for (int rank = 0; rank < stages; ++rank) {
          programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return 0; }));
        }
        double longest = 0.0;
        const SimulationResult result = simulate(unfolded(programs, stages), EqualStages());
        for (const SimulatedStep& s : result.steps[0]) longest = std::max(longest, s.step_seconds);
        EXPECT_NEAR(longest, (micro_batches + stages - 1) * (forward_seconds + backward_seconds), 1e-9)
            << mode << ", " << stages << " stages, " << micro_batches << " micro-batches";
      }
    }
  }
}

}  // namespace
}  // namespace strata
