/// @file
/// A pipeline of stages that fills and drains: all forwards, then all backwards.
///
/// Source:     Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS
///             2019, sec. 2.
/// Idea:       each stage holds some of the layers; micro-batches follow one another through the stages, so that all
///             stages work at once but for (S-1)/(M+S-1) of the time.
/// Symbols:    N ranks, S stages, M micro-batches, P_s parameters (elements) that stage s uses, C parameters that the
///             first and last stage both use (a tied table), g bytes of a gradient element, A_s bytes that stage s
///             keeps of one micro-batch between its forward and its backward, T_s bytes of one micro-batch's tensors
///             that cross from stage s - 1 to stage s (T_0 = T_S = 0).
/// Decides:    mesh axes {stage = S, data = N/S}, stage slowest; stages cut between blocks, embedding on the first,
///             head and loss on the last; schedule gpipe, backwards with the last micro-batch first.
/// Memory:     states: `single`'s with P_s for P; activations: M A_s, and what one backward pass needs.
/// Volume:     a rank of stage s and step: M (T_s + T_{s+1}) by send, 2 (D-1)/D P_s g by all-reduce with D = N/S, C g
///             where two stages hold C, 2 (N-1)/N · 4 for the loss, 2 (S-1)/S · 4 for the norm where it clips.
/// Reference:  `single` on the same global batch in the same micro-batches, up to the order of summation.
/// Options:    stages, cut_by, cut_at; micro-batches and recomputation are in [train], where micro-batches may be left
///             open.
/// Refuses:    more stages than blocks, where they are given; ranks that S does not divide; micro-batches that do not
///             divide the batch.
/// Differs:    recomputation is an option (the paper always recomputes); stages are cut by the least largest cost, not
///             into equally many layers.
/// Reproduces: the pipeline baseline of OSDP, CDP, Oases and AutoDDL.

#include "planners/pipelines/pipeline.hpp"

namespace strata {
namespace {

class Gpipe final : public Planner {
 public:
  std::string_view name() const override { return "gpipe"; }
  std::string_view summary() const override {
    return "pipeline of stages, fill and drain: all forwards, then all backwards";
  }
  std::string_view source() const override { return "Huang et al., GPipe, NeurIPS 2019"; }
  std::span<const OptionRow> options() const override { return pipeline_options(); }
  Plan plan(const PlanRequest& request) const override { return pipeline_plan(request, ScheduleKind::gpipe); }
};

}  // namespace

const Planner& gpipe_planner() {
  static const Gpipe planner;
  return planner;
}

}  // namespace strata
