/// @file
/// OSDP without operator splitting: each operator is replicated or sharded as a whole.
///
/// Source:     Jiang et al., "OSDP: Optimal Sharded Data Parallel for Distributed Deep Learning", IJCAI 2023 (arXiv
///             2209.13258), sec. 3.1, 3.2 and 4.2 ("OSDP-base").
/// Idea:       as `osdp`.
/// Symbols:    as `osdp`.
/// Decides:    mesh axes {data = N}; DP or ZDP for each of 2L + 2 operators; b where train.global_batch is "planner"; a
///             recomputed block gathers again.
/// Memory:     as `osdp` with whole operators.
/// Volume:     as `osdp`.
/// Reference:  `ddp`.
/// Options:    choice, granularity, sdp, search, dfs_nodes, cost, overlap.
/// Refuses:    as `osdp`.
/// Differs:    as `osdp`.
/// Reproduces: the OSDP-base bars of OSDP's figures 5, 6 and 8.

#include "planners/operators/plan_by_operator.hpp"

namespace strata {
namespace {

class OsdpBase final : public Planner {
 public:
  std::string_view name() const override { return "osdp-base"; }
  std::string_view summary() const override { return "osdp without operator splitting"; }
  std::string_view source() const override { return "Jiang et al., OSDP, IJCAI 2023"; }
  std::span<const OptionRow> options() const override { return operator_options(false); }
  bool chooses_batch() const override { return true; }
  Plan plan(const PlanRequest& request) const override { return plan_by_operator(request); }
};

}  // namespace

const Planner& osdp_base_planner() {
  static const OsdpBase planner;
  return planner;
}

}  // namespace strata
