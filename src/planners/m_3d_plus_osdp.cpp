/// @file
/// Replicas of pipelines whose data ranks hold the states of their stage as `osdp` decides: replicated, sharded, or in
/// slices of which some are.
///
/// Source:     Jiang et al., "OSDP: Optimal Sharded Data Parallel for Distributed Deep Learning", IJCAI 2023 (arXiv
///             2209.13258), sec. 4.1 ("3D+OSDP").
/// Idea:       OSDP stands in for data parallelism wherever that is one of several dimensions.
/// Symbols:    as `1f1b` and, within a stage, as `osdp` with D = N/S for N and the stage's operators.
/// Decides:    mesh axes {stage = S, data = D}; DP or ZDP, in how many of s slices, for each operator, by stage
///             (operators/in_stages.hpp); schedule 1f1b; a recomputed block gathers again.
/// Memory:     states as `osdp`'s over D for P_s; activations: min(M, S-s) A_s; the largest workspace of the stage.
/// Volume:     as `1f1b`, and in a stage as `osdp` over D.
/// Reference:  `single` on the same global batch in the same micro-batches, up to the order of summation.
/// Options:    stages, tensor, cut_by, and `osdp`'s.
/// Refuses:    tensor ranks, which `3d` has; what `1f1b` and `osdp` refuse; a batch of the planner's.
/// Differs:    a parameter of two stages, a tied table, is held one way in both and never cut. What a stage's Program
///             needs more than the closed form says is taken off its memory, as by `osdp`, with at most 10 Programs.
/// Reproduces: the 3D+OSDP bars of OSDP's figures 5 and 6.

#include "planners/operators/in_stages.hpp"

namespace strata {
namespace {

class ThreeDPlusOsdp final : public Planner {
 public:
  std::string_view name() const override { return "3d+osdp"; }
  std::string_view summary() const override {
    return "data x stage degrees by grid search, in each stage of which states are held as by osdp";
  }
  std::string_view source() const override { return "Jiang et al., OSDP, IJCAI 2023"; }
  std::span<const OptionRow> options() const override { return staged_options(); }
  Plan plan(const PlanRequest& request) const override { return plan_in_stages(request); }
};

}  // namespace

const Planner& m_3d_plus_osdp_planner() {
  static const ThreeDPlusOsdp planner;
  return planner;
}

}  // namespace strata
