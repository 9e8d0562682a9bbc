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
/// Decides:    schedule cyclic with fresh = none; stages cut between blocks, or at operators; mesh axes
///             {micro_batch = N} (multi; zero, with placement zero-ring and states that walk), {stage = K} (pipeline),
///             one rank (single), or {stage = N} placed as a pyramid (model), where stage j of N has N - j ranks and
///             micro-batch k, counted over all steps, is taken there by number k mod (N - j). How far ranks of multi
///             keep behind each other is the option shift: see partition/ring_pace.hpp.
/// Memory:     multi: weights c P a rank, one spare stage c P_0, on rank N-1 c P more and the optimizer's states; with
///             optimizer = first_user these, and a second version of its weights, of stage j on rank N-1-j instead. A
///             rank has all A_j at its fullest, all of them together, paced, N(N+1)/2 stages at every time step where
///             N = K. single: two versions, 2 c P, and as many activations at once. pipeline: a rank a stage and its
///             two versions. model: a rank a stage, its states and, where any of its micro-batches reads the step
///             before's, two versions, 2 c P_j, and the A_j of one micro-batch: of all ranks N(N+1)/2 stages at every
///             time step. zero: rank N-1-j has two versions of stage j and the optimizer's states of it alone, room for
///             three other stages, two on rank N-1 (the one that is read, the one that comes next, the one that goes
///             on), for sums of three stages' gradients and the whole one of its own, and the A_j of multi: with equal
///             stages 5 c P/N and 4 g P/N beside the states, where zero3 has c P/N, g P/N and what it gathers.
/// Volume:     multi, a rank and step: g P of sums but for the last, c P of parameters but for the last reader, by
///             messages between neighbours and from rank N-1; 8 K of tokens unless shift = free; no collective.
///             With optimizer = first_user rank N-1 sends g P (N-1)/N of whole sums instead of those parameters.
///             pipeline: as 1f1b, and 2 (K-1)/K · 4 for the norm where it clips. model: as 1f1b, and of each stage but
///             the last (2N - 2 - j) g P_j of sums over all ranks, point to point. zero, all ranks together:
///             g (N P - P_0) of sums; c P N-1 times for forwards, and as often for backwards what these read: no
///             biases, no embeddings, nothing of the last stage, whose forward is just before; no collective.
/// Reference:  θ_{t+1} = θ_t - γ_t/N Σ_i ∇f_i(θ_{t-1}), evaluated on one rank; θ_{-1} = θ_0.
/// Options:    implementation, fresh, within, stages, cut_by, cut_at, sum, spread, spare_stages, shift, optimizer.
/// Refuses:    micro-batches or stages that its ranks are not (model: N(N+1)/2 ranks), more stages than blocks, tied
///             weights over several stages, sharded states, shift = paced or begun but with multi, of tables beyond v2,
///             and where 2 K/N passes are no whole number; optimizer = first_user where K is not N, but with multi, and
///             with clip_norm, whose norm the last rank alone knows; clip_norm with model and zero, whose stages are
///             updated one after the other. With clip_norm all stages are updated at once, behind the norm, 2 K/N
///             passes before they are read.
/// Planner:    fresh = planner, of multi: the cuts and the table of least period, or, within so many times it, of most
///             fresh reads (planners/cyclic/freshest_ring.hpp), by the seconds that [planner] names; memory is not
///             asked. Of shift = free, optimizer = last and without clip_norm.
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
