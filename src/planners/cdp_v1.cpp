/// @file
/// Cyclic data parallelism that never waits for parameters: every micro-batch reads those of the step before.
///
/// Source:     Fournier et al., "Cyclic Data Parallelism for Efficient Parallelism of Deep Neural Networks", 2024,
///             sec. 3, rule CDP-v1; with a rank a stage it is PipeDream-2BW's rule.
/// Idea:       micro-batch i begins 2i time steps behind micro-batch 0, a time step being one stage's pass, so that at
///             every time each stage is used once: sums of gradients travel from micro-batch to micro-batch point to
///             point, and activations of all ranks together are those of one that is always half full.
/// Symbols:    N micro-batches i from 0, K stages j, t training step, θ_t parameters, γ_t learning rate, f_i loss of
///             micro-batch i, P parameters (elements), P_j of stage j, g and c bytes of a gradient and of a weight that
///             kernels read, A_j bytes that stage j keeps of a micro-batch between its forward and its backward.
/// Decides:    schedule cyclic with fresh = none; stages cut between blocks; mesh axes {micro_batch = N} (multi),
///             {stage = K} (pipeline), or one rank (single). How far ranks of multi keep behind each other is the
///             option shift: see partition/ring_pace.hpp.
/// Memory:     multi: weights c P a rank, one spare stage c P_0, on rank N-1 c P more and the optimizer's states; with
///             optimizer = first_user these, and a second version of its weights, of stage j on rank N-1-j instead. A
///             rank has all A_j at its fullest, all of them together, paced, N(N+1)/2 stages at every time step where
///             N = K. single: two versions, 2 c P, and as many activations at once. pipeline: a rank a stage and its
///             two versions.
/// Volume:     multi, a rank and step: g P of sums but for the last, c P of parameters but for the last reader, by
///             messages between neighbours and from rank N-1; 8 K of tokens unless shift = free; no collective.
///             With optimizer = first_user rank N-1 sends g P (N-1)/N of whole sums instead of those parameters.
///             pipeline: as 1f1b, and 2 (K-1)/K · 4 for the norm where it clips.
/// Reference:  θ_{t+1} = θ_t - γ_t/N Σ_i ∇f_i(θ_{t-1}), evaluated on one rank; θ_{-1} = θ_0.
/// Options:    implementation, fresh, stages, cut_by, sum, spread, spare_stages, shift, optimizer.
/// Refuses:    micro-batches or stages that its ranks are not, more stages than blocks, tied weights over several
///             stages, sharded states, shift = paced or begun without a rank a micro-batch, of tables beyond v2, and
///             where 2 K/N passes are no whole number; optimizer = first_user where K is not N, without a rank a
///             micro-batch, and with clip_norm, whose norm the last rank alone knows. With clip_norm all stages are
///             updated at once, behind the norm, 2 K/N passes before they are read.
/// Differs:    from the paper's code, which imitates the rule on ordinary data parallelism: steps overlap for real.
/// Reproduces: CDP figs. 1 and 2, table 1.

#include "planners/cyclic/cyclic_plan.hpp"

namespace strata {
namespace {

class CyclicV1 final : public Planner {
 public:
  std::string_view name() const override { return "cdp-v1"; }
  std::string_view summary() const override {
    return "cyclic data parallel: micro-batches one after the other, all with the last step's parameters";
  }
  std::string_view source() const override { return "Fournier et al., Cyclic Data Parallelism, 2024"; }
  std::span<const OptionRow> options() const override { return cyclic_options("none"); }
  Plan plan(const PlanRequest& request) const override { return cyclic_plan(request); }
};

}  // namespace

const Planner& cdp_v1_planner() {
  static const CyclicV1 planner;
  return planner;
}

}  // namespace strata
