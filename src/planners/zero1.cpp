/// @file
/// ZeRO stage 1: optimizer states are sharded over all ranks.
///
/// Source:     Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
///             sec. 5.1 (P_os); DeepSpeed's stage 1.
/// Idea:       nobody needs another rank's moments: each rank updates a part of the parameters and all gather them.
/// Symbols:    N ranks, P parameters (elements), c and g bytes of a parameter and a gradient element, U bytes of a
///             bucket.
/// Decides:    mesh axes {data = N}; p = g = 1x1, os = all ranks; states cut evenly; gathered parameters are given up.
/// Memory:     states a rank: cP + gP + 12P/N bytes with bf16 Adam, 4P + 4P + 8P/N with f32; P/N rounded up a tensor.
///             With gradients = reduce_scatter U/N more: what is kept of the first bucket comes beside all buckets.
///             With one micro-batch and reductions under backward they come and go: gP/N + (2 - 1/N) U stands for
///             gP + U/N, as one bucket is filled while one travels. U: the bucket size, and less than g × the largest
///             tensor more.
/// Volume:     a rank and step: (N-1)/N (gP + cP) with gradients = reduce_scatter, (N-1)/N (2 gP + cP) with
///             all_reduce, once a step whatever the micro-batches.
/// Reference:  `ddp`.
/// Options:    gradients, overlap.
/// Refuses:    micro-batches that do not divide the batch.
/// Differs:    tensors are cut one by one, DeepSpeed cuts one flat buffer; AMSP describes ZeRO-1 with an all-reduce,
///             which is `gradients = "all_reduce"`.
/// Reproduces: the ZeRO-1 lines of AMSP.

#include <array>

#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

class Zero1 final : public Planner {
 public:
  std::string_view name() const override { return "zero1"; }
  std::string_view summary() const override { return "optimizer states sharded over all ranks"; }
  std::string_view source() const override { return "Rajbhandari et al., ZeRO, SC 2020"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {gradients_option("reduce_scatter"), overlap_option()};
    return rows;
  }
  Plan plan(const PlanRequest& request) const override {
    return sharded_plan(request, {.os = whole_grid(request.base.mesh)});
  }
};

}  // namespace

const Planner& zero1_planner() {
  static const Zero1 planner;
  return planner;
}

}  // namespace strata
