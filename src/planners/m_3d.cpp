/// @file
/// Data, tensor and pipeline parallelism together, with the degrees that take the least time; tensor parallelism is one
/// rank wide so far.
///
/// Source:     Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC
///             2021, sec. 2; as a baseline: OSDP (IJCAI 2023), sec. 4.1 ("DeepSpeed 3D").
/// Idea:       replicas of pipelines; more stages hold less each, more replicas wait less for one another.
/// Symbols:    as `1f1b`.
/// Decides:    mesh axes {stage = S, data = N/S}, the S with the fewest predicted seconds of those that fit; schedule
///             1f1b.
/// Memory:     as `1f1b`.
/// Volume:     as `1f1b`.
/// Reference:  `single` on the same global batch in the same micro-batches, up to the order of summation.
/// Options:    stages, tensor, cut_by, cost.
/// Refuses:    a tensor degree above 1; data ranks that are no whole nodes, nor an even part of one; what `1f1b`
/// refuses
///             where stages are given; a capacity that no degrees fit into;
///             a cluster without the numbers that `cost` reads where degrees have to be compared.
/// Differs:    DeepSpeed's degrees are set by hand; the paper tunes them, as the search here does, by measuring.
/// Reproduces: the 3D bars of OSDP's figures 5 and 6.

#include "planners/operators/in_stages.hpp"

namespace strata {
namespace {

class ThreeD final : public Planner {
 public:
  std::string_view name() const override { return "3d"; }
  std::string_view summary() const override {
    return "data x stage degrees by grid search, one forward one backward; tensor degree 1 for now";
  }
  std::string_view source() const override { return "Narayanan et al., Megatron-LM, SC 2021"; }
  std::span<const OptionRow> options() const override { return staged_options(false); }
  Plan plan(const PlanRequest& request) const override { return plan_in_stages(request, false); }
};

}  // namespace

const Planner& m_3d_planner() {
  static const ThreeD planner;
  return planner;
}

}  // namespace strata
