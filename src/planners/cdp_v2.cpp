/// @file
/// Cyclic data parallelism with the freshest parameters: every micro-batch reads of each stage those of its own step
/// where they are updated in time, else those of the step before.
///
/// Source:     Fournier et al., "Cyclic Data Parallelism for Efficient Parallelism of Deep Neural Networks", 2024,
///             sec. 3, rule CDP-v2.
/// Idea:       as cdp-v1; stage j's update is there when micro-batch i comes to it if i + j >= N - 1 (with K stages if
///             j N >= K (N - 1 - i)), so that about half of what is read is fresh.
/// Symbols:    as cdp-v1; u_ij(θ_t, θ_{t-1}) what micro-batch i reads of stage j: the first where it is fresh.
/// Decides:    schedule cyclic with fresh = v2; else as cdp-v1.
/// Memory:     as cdp-v1; rank N-1 of multi has one version, since all that it reads is fresh; of shared stages 2N - 1
///             versions lie in memory (single, pipeline, and with zero at their owners: rank 0 has one of stage N-1);
///             of a pyramid's (model) ranks those have one that never take a micro-batch which reads the step before's.
/// Volume:     as cdp-v1.
/// Reference:  θ_{t+1} = θ_t - γ_t/N Σ_i ∇f_i(u_i), evaluated on one rank; θ_{-1} = θ_0. N = 1 is ordinary training.
/// Options:    implementation, fresh, within, stages, cut_by, cut_at, sum, spread, spare_stages, shift, optimizer.
/// Refuses:    as cdp-v1; with implementation = single, pipeline, model or zero tables that are fresher than v2, whose
///             order would wait for itself; clip_norm, for stages are read before the norm of all gradients is known.
/// Planner:    as cdp-v1.
/// Differs:    as cdp-v1; any table of fresh stages between the two rules is an option, and beyond them where ranks
///             take a micro-batch each and have all stages.
/// Reproduces: CDP figs. 1 and 2, table 1.

#include "planners/cyclic/cyclic_plan.hpp"

namespace strata {
namespace {

class CyclicV2 final : public Planner {
 public:
  std::string_view name() const override { return "cdp-v2"; }
  std::string_view summary() const override {
    return "cyclic data parallel: micro-batches one after the other, each with the freshest parameters in time";
  }
  std::string_view source() const override { return "Fournier et al., Cyclic Data Parallelism, 2024"; }
  std::span<const OptionRow> options() const override { return cyclic_options("v2"); }
  Plan plan(const PlanRequest& request) const override { return cyclic_plan(request); }
};

}  // namespace

const Planner& cdp_v2_planner() {
  static const CyclicV2 planner;
  return planner;
}

}  // namespace strata
