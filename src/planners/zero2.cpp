/// @file
/// ZeRO stage 2: gradients and optimizer states are sharded over all ranks.
///
/// Source:     Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
///             sec. 5.2 (P_os+g).
/// Idea:       a rank keeps only the gradients that its part of the update needs.
/// Symbols:    N ranks, M micro-batches, P parameters (elements), c and g bytes of a parameter and a gradient element,
///             U bytes of a bucket.
/// Decides:    mesh axes {data = N}; p = 1x1, g = os = all ranks; states cut evenly; gathered parameters are given up.
/// Memory:     states a rank: cP + gP/N + 12P/N bytes with bf16 Adam, 4P + 4P/N + 8P/N with f32; P/N rounded up a
///             tensor; and U, the bucket of whole gradients that is filled, or 2U where reductions run under backward:
///             one travels meanwhile (with one micro-batch (2 - 1/N) U: the last bucket's part is not kept yet). U: the
///             bucket size, and less than g × the largest tensor more.
/// Volume:     a rank and step: (N-1)/N (M gP + cP) with gradients = reduce_scatter, (N-1)/N (2 M gP + cP) with
///             all_reduce.
/// Reference:  `ddp`.
/// Options:    gradients, overlap.
/// Refuses:    micro-batches that do not divide the batch.
/// Differs:    tensors are cut one by one, DeepSpeed cuts one flat buffer.
/// Reproduces: the ZeRO-2 baseline of OSDP and CDP.

#include <array>

#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

class Zero2 final : public Planner {
 public:
  std::string_view name() const override { return "zero2"; }
  std::string_view summary() const override { return "gradients and optimizer states sharded over all ranks"; }
  std::string_view source() const override { return "Rajbhandari et al., ZeRO, SC 2020"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {gradients_option("reduce_scatter"), overlap_option()};
    return rows;
  }
  Plan plan(const PlanRequest& request) const override {
    const Factor all = whole_grid(request.base.mesh);
    return sharded_plan(request, {.g = all, .os = all});
  }
};

}  // namespace

const Planner& zero2_planner() {
  static const Zero2 planner;
  return planner;
}

}  // namespace strata
