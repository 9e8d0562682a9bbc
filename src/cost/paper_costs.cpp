/// @file
/// The costs that papers plan with: nameplate peak rates, rings on the slowest link, no latency hiding, no contention.

#include <fmt/format.h>

#include <algorithm>

#include "cost/collective_formulas.hpp"
#include "cost/cost_model.hpp"
#include "cost/kernel_work.hpp"
#include "cost/peak_rate.hpp"

namespace strata {
namespace {

class PaperCosts final : public CostModel {
 public:
  explicit PaperCosts(const Cluster& cluster) : CostModel(cluster.nics_per_node), cluster_(cluster) {
    require_memory_bandwidth(cluster);
  }
  CostSource source() const override { return CostSource::paper; }
  std::string description() const override {
    return fmt::format("paper: peak rates and alpha-beta rings of cluster {}", cluster_.name);
  }

  Cost kernel(const Program& program, const Instruction& instruction) const override {
    const double arithmetic = flops(instruction);
    const double seconds =
        arithmetic > 0.0
            ? arithmetic / peak_flops_per_second(cluster_, compute_dtype(program, instruction))
            : static_cast<double>(bytes_touched(program, instruction)) / cluster_.memory_bandwidth_bytes_per_second;
    return {seconds, Basis::formula};
  }

  CollectiveCost collective(Collective kind, std::int64_t bytes, const Placement& place) const override {
    const Factor& group = place.shape;
    const Link& inside = intra_link(cluster_, place.devices);
    const Link& slowest = group.nodes > 1 ? cluster_.inter_node : inside;
    const double alpha = std::max(slowest.latency_seconds, group.in_node > 1 ? inside.latency_seconds : 0.0);
    return {ring_seconds(kind, bytes, group.total(), alpha, 1.0 / slowest.bandwidth_bytes_per_second), Basis::formula,
            0};
  }

 private:
  Cluster cluster_;
};

}  // namespace

std::unique_ptr<CostModel> paper_costs(const Cluster& cluster) { return std::make_unique<PaperCosts>(cluster); }

}  // namespace strata
