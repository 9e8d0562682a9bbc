/// @file
/// Data parallelism: every rank holds everything, gradients are all-reduced.
///
/// Source:     Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, sec. 3.
/// Idea:       one replica a rank; gradients are reduced in buckets, in the order in which backward completes them,
///             under the rest of backward.
/// Symbols:    N ranks, P parameters (elements), g bytes of a gradient element.
/// Decides:    mesh axes {data = N}; nothing else.
/// Memory:     states a rank: fp32 Adam 16P bytes; bf16 Adam 2P + gP + 12P; the gradient part (4P, gP) lives from
///             backward to the update.
/// Volume:     2 (N-1)/N · P · g bytes a rank and step.
/// Reference:  `single` on the same global batch, up to the order of summation.
/// Options:    none; bucket size and overlap are in [overlap].
/// Refuses:    micro-batches that do not divide the batch.
/// Differs:    every bucket has the same least size (PyTorch's first one is smaller); nothing is broadcast at the start
///             because initial values are computed by global index.
/// Reproduces: the data-parallel baseline of OSDP, AutoDDL and CDP.

#include "planners/even_micro_batches.hpp"
#include "planners/planner.hpp"

namespace strata {
namespace {

class Ddp final : public Planner {
 public:
  std::string_view name() const override { return "ddp"; }
  std::string_view summary() const override {
    return "data parallel: replicas, bucketed gradient all-reduce under backward";
  }
  std::string_view source() const override { return "Li et al., PyTorch Distributed, VLDB 2020"; }
  std::span<const OptionRow> options() const override { return {}; }

  Plan plan(const PlanRequest& request) const override {
    Plan plan = request.base;
    plan.mesh.axes = {{"data", plan.mesh.num_ranks()}};
    refuse_uneven_micro_batches(plan);
    return plan;
  }
};

}  // namespace

const Planner& ddp_planner() {
  static const Ddp planner;
  return planner;
}

}  // namespace strata
