#pragma once

/// @file
/// Models, plans and costs of cyclic data parallelism on a rank a micro-batch whose times can be counted: a stage is a
/// layer, whose forward and backward are one kernel each.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cost/cost_model.hpp"
#include "lower/lower.hpp"
#include "models/graph_builder.hpp"
#include "planners/cyclic/ring_period.hpp"

namespace strata::test {

/// Of layer @p j and the one before it: no two products are equal.
inline std::int64_t width(int j) { return 8 + j * (j + 3); }

constexpr std::int64_t num_pixels = 4;
constexpr std::int64_t first_bytes = 4 * num_pixels * 8;
constexpr std::int64_t token_bytes = 4;

/// A stage a layer without bias; before the first one a layer that takes no time, so that there too the backward reads
/// the parameters.
inline ModelGraph layers(int num_layers) {
  GraphBuilder graph("layers");
  int x = graph.input("image", {num_pixels}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  for (int j = 0; j < num_layers; ++j) {
    graph.begin_block(fmt::format("block[{}]", j));
    if (j == 0) x = graph.linear("first", x, {.in = num_pixels, .out = width(0), .bias = false});
    x = graph.linear("linear", x, {.in = width(j), .out = width(j + 1), .bias = false});
    graph.end_block();
  }
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

/// Each stage's passes are one kernel each; what else runs takes no time, and no transfer slows another.
class StageCosts final : public CostModel {
 public:
  explicit StageCosts(std::vector<StageSeconds> stages) : CostModel(1), stages_(std::move(stages)) {}
  CostSource source() const override { return CostSource::analytic; }
  std::string description() const override { return "stages"; }
  Cost kernel(const Program&, const Instruction& in) const override {
    for (std::size_t j = 0; j < stages_.size(); ++j) {
      if (!in.name.starts_with(fmt::format("block[{}].linear", j))) continue;
      switch (in.kernel) {
        case Kernel::linear_forward: return {stages_[j].forward};
        case Kernel::linear_backward_weight: return {stages_[j].backward};
        case Kernel::sgd_momentum: return {stages_[j].update};
        default: return {0.0};
      }
    }
    return {0.0};
  }
  /// Sums are as long as parameters.
  CollectiveCost collective(Collective, std::int64_t bytes, const Placement&) const override {
    if (bytes == first_bytes) return {0.0};
    if (bytes == token_bytes) return {stages_.front().token};
    for (std::size_t j = 0; j < stages_.size(); ++j) {
      const auto stage = static_cast<int>(j);
      const std::int64_t before = j == 0 ? first_bytes : 0;
      if (bytes == 4 * width(stage) * width(stage + 1) + before) return {stages_[j].sum};
      if (bytes == 4 * width(stage) * width(stage + 1)) return {stages_[j].sum};
    }
    throw InternalError(fmt::format("no stage has {} bytes", bytes));
  }

 private:
  std::vector<StageSeconds> stages_;
};

inline Plan ring_plan(int micro_batches, int stages, const std::string& fresh) {
  Plan plan;
  plan.strategy = "cyclic";
  plan.mesh.ranks_per_node = micro_batches;
  plan.mesh.axes = {{"micro_batch", micro_batches}};
  plan.stages.count = stages;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = micro_batches, .fresh = fresh};
  plan.global_batch = micro_batches;
  plan.optimizer = {.kind = "sgd", .momentum = 0.5};
  return plan;
}

inline std::vector<Program> ring_programs(const Plan& plan, const ModelGraph& graph) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return std::int64_t{0}; }));
  }
  return programs;
}

}  // namespace strata::test
