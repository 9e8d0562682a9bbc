/// @file
/// ZeRO stage 3, which is fully sharded data parallelism: parameters, gradients and optimizer states are sharded over
/// all ranks.
///
/// Source:     Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
///             sec. 5.3 (P_os+g+p); Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel",
///             VLDB 2023.
/// Idea:       an operator's parameters are gathered just before they are used and given up after.
/// Symbols:    N ranks, M micro-batches, P parameters (elements), c and g bytes of a parameter and a gradient element.
/// Decides:    mesh axes {data = N}; p = g = os = all ranks; states cut evenly; a recomputed block gathers again.
/// Memory:     states a rank: (c + g + 12) P/N bytes with bf16 Adam, 16 P/N with f32, P/N rounded up a tensor; and
///             while a layer of n elements, w of which backward reads, is computed beside others like it:
///                 overlap = none                                  c w + g n
///                 overlap = deepspeed: the next weight is there  2c w + g n
///                 overlap = gather, full: and one gradient more  2c w + 2g n, as it is scattered
///             with c n for the one c w of what is fetched ahead where blocks are recomputed; in forward 2c n at most.
///             With one micro-batch less, by the gradients of layers that backward has not reached yet.
/// Volume:     a rank and step: (N-1)/N M (2 cP + gP), 1.5 times `ddp`'s at M = 1 where c = g; one more cP where
///             blocks are recomputed; 2 (N-1)/N · 4 for the loss. An embedding's backward reads no weight and gathers
///             none.
/// Reference:  `ddp`.
/// Options:    overlap, slices.
/// Refuses:    micro-batches that do not divide the batch.
/// Differs:    tensors are cut one by one; FSDP cuts a flat buffer a unit. With slices a linear is gathered and
///             multiplied a slice of its input after another, as OSDP does (sec. 3.3): what is gathered at a time
///             falls by so much.
/// Reproduces: the ZeRO-3 and FSDP lines of OSDP, AMSP and CDP.

#include <array>
#include <set>

#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

class Zero3 final : public Planner {
 public:
  std::string_view name() const override { return "zero3"; }
  std::string_view summary() const override {
    return "parameters, gradients and optimizer states sharded over all ranks (FSDP)";
  }
  std::string_view source() const override { return "Rajbhandari et al., ZeRO, SC 2020; Zhao et al., FSDP, VLDB 2023"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        overlap_option(),
        OptionRow{"slices", std::int64_t{0}, ">= 0 and <= 1048576",
                  "linears are cut into so many slices along their input, gathered one after another (OSDP); 0: none"}};
    return rows;
  }
  Plan plan(const PlanRequest& request) const override {
    const Factor all = whole_grid(request.base.mesh);
    Plan plan = sharded_plan(request, {.p = all, .g = all, .os = all});
    const auto slices = static_cast<int>(request.option<std::int64_t>("slices"));
    if (slices > 0) cut_linears(plan, request.graph, slices);
    return plan;
  }

 private:
  /// An embedding is cut with the head that shares its table.
  static void cut_linears(Plan& plan, const ModelGraph& graph, int slices) {
    std::set<int> cut;  // parameters
    for (const Operator& op : graph.operators) {
      if (op.kind == OperatorKind::linear) cut.insert(op.parameters.front());
    }
    for (const Operator& op : graph.operators) {
      if (!op.parameters.empty() && cut.contains(op.parameters.front())) {
        plan.operators.push_back({.match = op.name, .slices = slices});
      }
    }
  }
};

}  // namespace

const Planner& zero3_planner() {
  static const Zero3 planner;
  return planner;
}

}  // namespace strata
