/// @file
/// Data, tensor and pipeline parallelism together, with the degrees that take the least time.
///
/// Source:     Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC
///             2021, sec. 2; as a baseline: OSDP (IJCAI 2023), sec. 4.1 ("DeepSpeed 3D").
/// Idea:       replicas of pipelines whose stages share their weights: more stages and more tensor ranks hold less
///             each, and wait more for one another than more replicas do.
/// Symbols:    N ranks, S places of a pipeline, v stages a place, t tensor ranks, d = N/(S t) replicas, M
/// micro-batches;
///             else as `1f1b`, and of tensor ranks as `megatron`.
/// Decides:    S, v, t, how tensor ranks sum and, where asked for, M: the combination with the fewest simulated seconds
///             of those that fit. t = 1: mesh axes {stage = S, data = d}; else mesh axis {stage = S} and megatron's
///             layouts (d, t, 1) and (d, 1, t) within a place, tensor ranks as near to each other as can be. Schedule
///             1f1b, of v > 1 interleaved.
/// Memory:     as `1f1b`, `interleaved` and, of t > 1, `megatron` on a place's ranks.
/// Volume:     the same.
/// Reference:  `single` on the same global batch in the same micro-batches, up to the order of summation.
/// Options:    stages (v S), chunks (v), tensor, sum, micro_batches, cut_by: each a number or a word, or left to the
///             search.
/// Refuses:    data ranks that are no whole nodes, nor an even part of one; what `1f1b`, `interleaved` and `megatron`
///             refuse where degrees are given, or where they refuse all; stages that outnumber the blocks; a capacity
///             that no degrees fit into; several combinations where nobody simulates.
/// Differs:    DeepSpeed's degrees are set by hand; the paper tunes them, as the search here does, by measuring.
///             Tensor ranks are looked for inside nodes, unless nodes have one rank.
/// Reproduces: the 3D bars of OSDP's figures 5 and 6.

#include "planners/pipelines/degree_search.hpp"

namespace strata {
namespace {

class ThreeD final : public Planner {
 public:
  std::string_view name() const override { return "3d"; }
  std::string_view summary() const override {
    return "data x tensor x stage degrees, with several stages a rank, by search: the fastest simulated step that fits";
  }
  std::string_view source() const override { return "Narayanan et al., Megatron-LM, SC 2021"; }
  std::span<const OptionRow> options() const override { return degree_options(); }
  Plan plan(const PlanRequest& request) const override { return fastest_degrees(request); }
};

}  // namespace

const Planner& m_3d_planner() {
  static const ThreeD planner;
  return planner;
}

}  // namespace strata
