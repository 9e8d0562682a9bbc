#pragma once

/// @file
/// Costs that a test writes down: each kernel by its name, each collective by its kind.

#include <map>
#include <string>

#include "cost/cost_model.hpp"

namespace strata::test {

class FixedCosts final : public CostModel {
 public:
  explicit FixedCosts(int nics_per_node = 1) : CostModel(nics_per_node) {}
  CostSource source() const override { return CostSource::paper; }
  std::string description() const override { return "fixed"; }
  Cost kernel(const Program&, const Instruction& in) const override { return {kernels.at(in.name), Basis::formula}; }
  CollectiveCost collective(Collective kind, std::int64_t, const Placement& place) const override {
    return {collectives.at(kind), Basis::formula, place.shape.nodes > 1 ? nics_used : 0};
  }
  Slowdown slowdown() const override { return slow; }

  std::map<std::string, double> kernels;
  std::map<Collective, double> collectives;
  Slowdown slow;
  int nics_used = 1;
};

}  // namespace strata::test
