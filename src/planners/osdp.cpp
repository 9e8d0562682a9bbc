/// @file
/// OSDP: each operator is replicated or sharded, or cut into slices of which some are, for the fewest seconds a sample
/// that memory allows.
///
/// Source:     Jiang et al., "OSDP: Optimal Sharded Data Parallel for Distributed Deep Learning", IJCAI 2023 (arXiv
///             2209.13258), sec. 3.
/// Idea:       sharding everything (ZDP) saves more memory than is missing and costs half as much communication again;
///             shard just as much as must be, by operator or by slice.
/// Symbols:    N ranks, b samples a rank and micro-batch, M micro-batches, n_i elements of operator i, c, g, o bytes of
///             a parameter, a gradient and its optimizer states, s slices.
/// Decides:    mesh axes {data = N}; DP or ZDP, in how many of s slices, for each of 2L + 2 operators; b where
///             train.global_batch is "planner"; a recomputed block gathers again.
/// Memory:     states a rank: Σ (c + g + o) n_i, over N where sharded; then the fullest moment of activations, of the
///             gradients that exist by then and of the largest workspace, of which a slice has an s-th
///             (operators/choices.hpp).
/// Volume:     a rank and step: Σ 2 (N-1)/N g n_i where replicated, Σ (N-1)/N M (2 c n_i + g n_i) where sharded, one
///             more c n_i where a block is recomputed; an embedding's and a bias's backward reads none: c n_i once.
///             SDP: (N-1)/N (M g n_i + c n_i). 2 (N-1)/N · 4 for the loss.
/// Reference:  `ddp`.
/// Options:    slices, choice, granularity, sdp, search, dfs_nodes, cost, overlap.
/// Refuses:    a capacity below what the least plan needs; a batch of the planner's without a capacity; a cluster
///             without the numbers that `cost` reads; micro-batches that do not divide the batch.
/// Differs:    the paper searches depth first for 9 to 307 s; the default is exact in milliseconds, since operators of
///             one shape are counted. Whether an answer fits, and which is the largest batch that is tried, is the
///             Program's peak, of a few tens of Programs; the closed form orders, and decides where nothing lowers. The
///             search adds times up, as the paper's; since a cut or a replica that is free by the sum may hide less,
///             its answer, the one without slices, all ZDP and all DP with the largest batches that they fit with are
///             compared by [planner]'s prediction, and the fastest is taken: osdp >= osdp-base >= zero3, ddp in
///             predicted samples a second; `choice = "search"` takes the answer as it is, as the paper does. Only
///             linears whose input divides by `slices` and whose weight is not tied are cut. Workspace is a maximum, as
///             it is in the run, not a sum. A norm's or bias's few bytes go with their operator. The published code has
///             no slices in its search, one constant for all workspaces, minimises the step and not the sample, and
///             fails where nothing fits.
/// Reproduces: OSDP's figures 5 to 9 and its table 1.

#include "planners/operators/plan_by_operator.hpp"

namespace strata {
namespace {

class Osdp final : public Planner {
 public:
  std::string_view name() const override { return "osdp"; }
  std::string_view summary() const override {
    return "each operator, or slice of one, replicated or sharded: the fewest seconds a sample that memory allows";
  }
  std::string_view source() const override { return "Jiang et al., OSDP, IJCAI 2023"; }
  std::span<const OptionRow> options() const override { return operator_options(true); }
  bool chooses_batch() const override { return true; }
  Plan plan(const PlanRequest& request) const override { return plan_by_operator(request); }
};

}  // namespace

const Planner& osdp_planner() {
  static const Osdp planner;
  return planner;
}

}  // namespace strata
