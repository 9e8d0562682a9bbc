/// @file
/// Roofline with what real kernels lose: short dims fill tiles and pipelines badly, memory streams below its nameplate,
/// every launch costs time.

#include <fmt/format.h>

#include <algorithm>

#include "cost/collective_formulas.hpp"
#include "cost/cost_model.hpp"
#include "cost/kernel_work.hpp"
#include "cost/peak_rate.hpp"

namespace strata {
namespace {

/// Of one kind of device. Sources: [GPU] cuBLAS on A100 reaches 0.80–0.86 of its peak at n = 8192 and half of that near
/// n = 512–1024 (measurements published with vTrain and llm.c); streaming kernels 0.85–0.9 of HBM; a launch 4–6 µs.
/// [CPU] `bench_dense` and `bench_memory_bound` on AVX-512 with AMX: peak is measured, so that 0.9 of it is left at
/// n = 1024.
struct Efficiency {
  double product;      ///< of the peak, at unlimited dims
  double half_dim;     ///< a dim of this length halves it
  double attention;    ///< of the peak: two products with a softmax between them
  double convolution;  ///< of the peak
  double memory;       ///< of the bandwidth
  double launch_seconds;
};
constexpr Efficiency gpu{0.85, 96.0, 0.5, 0.6, 0.85, 4e-6};
constexpr Efficiency cpu{0.95, 16.0, 0.45, 0.6, 0.8, 1e-6};

class AnalyticCosts final : public CostModel {
 public:
  explicit AnalyticCosts(const Cluster& cluster)
      : CostModel(cluster.nics_per_node), cluster_(cluster), efficiency_(computes_on_cpus(cluster) ? cpu : gpu) {
    require_memory_bandwidth(cluster);
  }
  CostSource source() const override { return CostSource::analytic; }
  std::string description() const override {
    return fmt::format("analytic: roofline and alpha-beta of cluster {}", cluster_.name);
  }

  Cost kernel(const Program& program, const Instruction& instruction) const override {
    const double arithmetic = flops(instruction);
    const double stream_seconds = static_cast<double>(bytes_touched(program, instruction)) /
                                  (efficiency_.memory * cluster_.memory_bandwidth_bytes_per_second);
    double seconds = stream_seconds;
    if (arithmetic > 0.0) {
      const DType dtype = compute_dtype(program, instruction);
      const double reached = effective_flops_per_second(cluster_, dtype);
      const double rate = peak_flops_per_second(cluster_, dtype) * share_of_peak(instruction);
      seconds = std::max(seconds, arithmetic / (reached > 0.0 ? std::min(reached, rate) : rate));
    }
    return {seconds + efficiency_.launch_seconds, Basis::formula};
  }

  CollectiveCost collective(Collective kind, std::int64_t bytes, const Placement& place) const override {
    const Link& inside = intra_link(cluster_, place.devices);
    return {nccl_like_seconds(kind, bytes, place.shape, inside, cluster_, place.leaves), Basis::formula,
            nics_used(place.shape, cluster_)};
  }
  Slowdown slowdown() const override { return {cluster_.compute_slowdown, cluster_.communication_slowdown}; }
  double step_overhead_seconds() const override { return cluster_.step_overhead_seconds; }

 private:
  double share_of_peak(const Instruction& instruction) const {
    const Attributes& a = instruction.attributes;
    switch (instruction.kernel) {
      case Kernel::linear_forward:
      case Kernel::linear_backward_input:
      case Kernel::linear_backward_weight: {
        double share = efficiency_.product;
        for (const char* dim : {"rows", "in", "out"}) {
          const auto length = static_cast<double>(a.integer(dim));
          share *= length / (length + efficiency_.half_dim);
        }
        return share;
      }
      case Kernel::attention_forward:
      case Kernel::attention_backward: return efficiency_.attention;
      default: return efficiency_.convolution;
    }
  }

  Cluster cluster_;
  Efficiency efficiency_;
};

}  // namespace

std::unique_ptr<CostModel> analytic_costs(const Cluster& cluster) { return std::make_unique<AnalyticCosts>(cluster); }

}  // namespace strata
