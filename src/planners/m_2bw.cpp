/// @file
/// A pipeline that never empties: weights have two versions, so that the next step begins before this one has ended.
///
/// Source:     Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training" (PipeDream-2BW), ICML 2021,
/// sec. 3.1. Idea:       one forward, one backward over all training steps, without a flush between them; every pass of
/// a step reads
///             parameters that are one update old, in all stages alike.
/// Symbols:    N ranks, S stages, M micro-batches, P_s parameters (elements) that stage s uses, C parameters that the
///             first and last stage both use (a tied table), g bytes of a gradient element, A_s bytes that stage s
///             keeps of one micro-batch between its forward and its backward, T_s bytes of one micro-batch's tensors
///             that cross from stage s - 1 to stage s (T_0 = T_S = 0), f and b seconds of a stage's passes.
/// Rule:       θ_{t+1} = θ_t - γ ∇f_t(θ_{t-1}), θ_{-1} = θ_0: the first two gradients are of the initial parameters.
/// With
///             M = N = S what `cdp-v1` trains, in a pipeline.
/// Decides:    mesh axes {stage = S, data = N/S}, stage slowest; stages cut between blocks, embedding on the first,
///             head and loss on the last; schedule 2bw.
/// Memory:     states: `single`'s with P_s for P, and a second version of P_s; activations: (S-s) A_s.
/// Time:       M (f + b) a step, no bubble, once steps repeat; (S-1) b more where a table is tied, whose sum the last
///             stage waits for.
/// Volume:     as `1f1b` without clipping.
/// Reference:  its rule, evaluated directly, which no mode that flushes has.
/// Options:    stages, cut_by, cut_at; micro-batches and recomputation are in [train], where micro-batches may be left
///             open.
/// Refuses:    fewer micro-batches than stages; clipping; more stages than blocks; ranks that S does not divide;
///             micro-batches that do not divide the batch.
/// Differs:    from the authors' code: no dynamic loss scaling, so no step is skipped.
/// Reproduces: the asynchronous pipeline that CDP is compared with (table 1, "PP is cyclic already").

#include "planners/pipelines/pipeline.hpp"

namespace strata {
namespace {

class TwoBufferedWeights final : public Planner {
 public:
  std::string_view name() const override { return "2bw"; }
  std::string_view summary() const override {
    return "pipeline of stages without a flush: no bubble, gradients of parameters one update old";
  }
  std::string_view source() const override { return "Narayanan et al., PipeDream-2BW, ICML 2021"; }
  std::span<const OptionRow> options() const override { return pipeline_options(); }
  Plan plan(const PlanRequest& request) const override {
    Plan plan = pipeline_plan(request, ScheduleKind::two_buffered_weights);
    if (plan.schedule.micro_batches < plan.stages.count) {
      throw Unsupported(fmt::format(
          "{}: train.micro_batches = {} in {} stages on {} ranks; accepted: at least {}, so that a step's "
          "parameters are made before its first forward",
          plan.strategy, plan.schedule.micro_batches, plan.stages.count, plan.mesh.num_ranks(), plan.stages.count));
    }
    return plan;
  }
};

}  // namespace

const Planner& m_2bw_planner() {
  static const TwoBufferedWeights planner;
  return planner;
}

}  // namespace strata
