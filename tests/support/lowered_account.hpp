#pragma once

/// @file
/// What a planner is told of memory where a test plans without an experiment: by Programs whose libraries need no
/// scratch. Of seconds it knows nothing.

#include <string>
#include <utility>

#include "base/error.hpp"
#include "lower/plan_memory.hpp"
#include "planners/evaluate.hpp"

namespace strata {

class LoweredAccount : public Evaluate {
 public:
  /// @param graph outlives this.
  explicit LoweredAccount(const ModelGraph& graph) : graph_(graph) {}
  Evaluation operator()(const Plan& plan) const override { return memory(plan); }
  bool knows_seconds() const override { return false; }
  Evaluation account(const Plan& plan) const override { return memory(plan); }
  Evaluation memory(const Plan& plan) const override {
    return said([&] {
      PlanMemory memory = plan_memory(plan, graph_, no_scratch);
      return Evaluation{
          .peak_bytes = memory.peak_bytes, .stage_peak_bytes = std::move(memory.stage_peak_bytes), .peak = memory.peak};
    });
  }
  Evaluation least_memory(const Plan& plan) const override {
    return said([&] { return Evaluation{.peak_bytes = least_memory_bytes(plan, graph_, no_scratch)}; });
  }
  PricedStep price(const Plan&, const ModelGraph&) const override { return {.missing = "nothing is priced here"}; }
  double collective_seconds(Collective, const Mesh&, std::span<const int>, std::int64_t) const override { return 0.0; }

 private:
  static std::int64_t no_scratch(const Program&, const Instruction&) { return 0; }
  template <typename Ask>
  static Evaluation said(const Ask& ask) {
    try {
      return ask();
    } catch (const Unsupported& refusal) {
      return {.missing = refusal.what()};
    }
  }
  const ModelGraph& graph_;
};

}  // namespace strata
