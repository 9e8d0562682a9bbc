/// @file
/// A pipeline of stages in which each backward follows as early as it can: one forward, one backward.
///
/// Source:     Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, sec. 3.2;
///             with a flush every step: "Efficient Large-Scale Language Model Training on GPU Clusters Using
///             Megatron-LM", SC 2021, sec. 2.2.1.
/// Idea:       a stage starts a micro-batch's backward as soon as its gradient is there, so that few micro-batches are
///             in flight; the bubble is GPipe's, (S-1)/(M+S-1).
/// Symbols:    N ranks, S stages, M micro-batches, P_s parameters (elements) that stage s uses, C parameters that the
///             first and last stage both use (a tied table), g bytes of a gradient element, A_s bytes that stage s
///             keeps of one micro-batch between its forward and its backward, T_s bytes of one micro-batch's tensors
///             that cross from stage s - 1 to stage s (T_0 = T_S = 0).
/// Decides:    mesh axes {stage = S, data = N/S}, stage slowest; stages cut between blocks, embedding on the first,
///             head and loss on the last; schedule 1f1b.
/// Memory:     states: `single`'s with P_s for P; activations: min(M, S-s) A_s, and what one backward pass needs.
/// Volume:     a rank of stage s and step: M (T_s + T_{s+1}) by send, 2 (D-1)/D P_s g by all-reduce with D = N/S, C g
///             where two stages hold C, 2 (N-1)/N · 4 for the loss, 2 (S-1)/S · 4 for the norm where it clips.
/// Reference:  `single` on the same global batch in the same micro-batches, up to the order of summation.
/// Options:    stages, cut_by, cut_at; micro-batches and recomputation are in [train], where micro-batches may be left
///             open.
/// Refuses:    more stages than blocks, where they are given; ranks that S does not divide; micro-batches that do not
///             divide the batch.
/// Differs:    from PipeDream: weights are updated once a step, so there is one version of them; from Megatron-LM:
///             uneven numbers of layers, and sends that no kernel waits for.
/// Reproduces: the pipeline baseline of OSDP, CDP, Oases and AutoDDL.

#include "planners/pipelines/pipeline.hpp"

namespace strata {
namespace {

class OneForwardOneBackward final : public Planner {
 public:
  std::string_view name() const override { return "1f1b"; }
  std::string_view summary() const override {
    return "pipeline of stages, one forward one backward: few micro-batches in flight";
  }
  std::string_view source() const override { return "Narayanan et al., PipeDream, SOSP 2019; Megatron-LM, SC 2021"; }
  std::span<const OptionRow> options() const override { return pipeline_options(); }
  Plan plan(const PlanRequest& request) const override {
    return pipeline_plan(request, ScheduleKind::one_forward_one_backward);
  }
};

}  // namespace

const Planner& m_1f1b_planner() {
  static const OneForwardOneBackward planner;
  return planner;
}

}  // namespace strata
