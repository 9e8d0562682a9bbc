/// @file
/// Replicas of pipelines whose ranks hold the states of their stages as `osdp` decides: replicated, sharded, or in
/// slices of which some are.
///
/// Source:     Jiang et al., "OSDP: Optimal Sharded Data Parallel for Distributed Deep Learning", IJCAI 2023 (arXiv
///             2209.13258), sec. 4.1 ("3D+OSDP").
/// Idea:       OSDP stands in for data parallelism wherever that is one of several dimensions.
/// Symbols:    as `3d` and, within a place, as `osdp` with the d ranks that hold the same part of a weight for N, and
///             the operators of the place's stages.
/// Decides:    degrees as `3d`; DP or ZDP over d, of whole weights (t = 1) in how many of s slices, for each operator,
///             by place (operators/in_stages.hpp); a recomputed block gathers again.
/// Memory:     states as `osdp`'s over d of what a rank of `3d` holds; the rest as `3d`; the largest workspace of the
///             place.
/// Volume:     as `3d`, and in a place as `osdp` over d.
/// Reference:  `single` on the same global batch in the same micro-batches, up to the order of summation.
/// Options:    stages, chunks, tensor, sum, micro_batches, cut_by, and `osdp`'s but for choice.
/// Refuses:    what `3d` and `osdp` refuse; more than one slice beside tensor ranks, which
///             nothing lowers: of several tensor ranks operators are held whole (slices = -1), and where slices are
///             asked for no tensor ranks are looked at.
/// Planner:    for each combination of degrees, in the order of a bound of what it takes at least (what has to be
///             sharded, by prices first and then by what the Programs of replicas need, is gathered for every
///             micro-batch), the states by closed form within what Programs leave of the memory; of those the fastest
///             simulated step. Where nobody simulates whole weights and a stage a rank are compared by closed form. Of
///             data ranks alone `osdp`'s own plan stands beside the others, so that this is never slower. A batch of
///             the planner's is `osdp`'s.
/// Differs:    a parameter of two places, a tied table, is held one way in both and never cut. What a place's Program
///             needs more than the closed form says is taken off its memory, with at most 10 Programs of few
///             micro-batches.
/// Reproduces: the 3D+OSDP bars of OSDP's figures 5 and 6.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "planners/operators/in_stages.hpp"
#include "planners/operators/plan_by_operator.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

/// All ranks are data ranks, with as many micro-batches as @p base has.
bool are_osdps(const ParallelDegrees& degrees, const Plan& base) {
  return degrees.stages() == 1 && degrees.tensor == 1 && degrees.micro_batches == base.schedule.micro_batches;
}

/// What `osdp` takes, over all ranks. @throws OutOfMemory, Unsupported as it does.
PlanWithStates plan_of_osdp(PlanRequest request) {
  request.options.insert_or_assign("slices", std::int64_t{slices_by_degrees(request, {})});
  request.options.insert_or_assign("choice", std::string("simulated"));
  PlanWithStates found{.plan = plan_by_operator(request)};
  found.seconds = found.plan.why.predicted_seconds;
  found.peak_bytes = found.plan.why.predicted_peak_bytes;
  found.plan.why = {};
  return found;
}

class ThreeDPlusOsdp final : public Planner {
 public:
  std::string_view name() const override { return "3d+osdp"; }
  std::string_view summary() const override {
    return "data x tensor x stage degrees as 3d, in each stage of which states are held as by osdp";
  }
  std::string_view source() const override { return "Jiang et al., OSDP, IJCAI 2023"; }
  std::span<const OptionRow> options() const override { return staged_options(); }
  bool chooses_batch() const override { return true; }

  Plan plan(const PlanRequest& request) const override {
    PlanRequest asked = request;
    asked.base = with_options_of_states(request);
    const bool is_limited = request.base.device_capacity_bytes > 0;
    const bool simulates = request.evaluate != nullptr && request.evaluate->knows_seconds();
    std::optional<PlanWithStates> of_osdp;
    if (asked.base.global_batch == 0) {
      of_osdp = plan_with_batch_of_osdp(asked);
      asked.base.global_batch = of_osdp->plan.global_batch;
    }
    std::unique_ptr<CostModel> costs;
    const auto decide = [&](const ParallelDegrees& degrees, const Plan& replicated, const StatesWanted& wanted) {
      // Nothing communicates less than replicas, and nothing has to be saved.
      if (simulates && !is_limited) return std::vector<PlanWithStates>{{.plan = replicated}};
      if (costs == nullptr) {
        costs = cost_model_of(
            request, is_limited ? "leave resources.memory_gib unset and set strategy.stages" : "set strategy.stages");
      }
      std::vector<PlanWithStates> plans = states_in_stages(asked, *costs, degrees, replicated, wanted);
      const bool may_fit = plans.size() > 1 || plans.front().peak_bytes <= request.base.device_capacity_bytes;
      if (simulates && may_fit && are_osdps(degrees, asked.base)) {
        if (!of_osdp) of_osdp = found_by_osdp(asked);
        if (of_osdp) plans.push_back(*of_osdp);
      }
      return plans;
    };
    return fastest_degrees(asked, decide, request.option<bool>("sdp") ? HeldStates::any : HeldStates::dp_or_zdp);
  }

 private:
  static PlanWithStates plan_with_batch_of_osdp(const PlanRequest& request) {
    try {
      return plan_of_osdp(request);
    } catch (const OutOfMemory& refusal) {
      throw OutOfMemory(
          fmt::format("train.global_batch = \"planner\" is osdp's batch, of data ranks alone, and there is none: {}",
                      refusal.what()));
    }
  }
  static std::optional<PlanWithStates> found_by_osdp(const PlanRequest& request) {
    try {
      return plan_of_osdp(request);
    } catch (const OutOfMemory&) {
      return std::nullopt;
    }
  }
};

}  // namespace

const Planner& m_3d_plus_osdp_planner() {
  static const ThreeDPlusOsdp planner;
  return planner;
}

}  // namespace strata
