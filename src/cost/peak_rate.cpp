#include "cost/peak_rate.hpp"

#include <fmt/format.h>

#include <string>

#include "base/error.hpp"

namespace strata {

double peak_flops_per_second(const Cluster& cluster, DType dtype) {
  auto found = cluster.peak_flops_per_second.find(std::string(to_string(dtype)));
  if (found == cluster.peak_flops_per_second.end() && dtype == DType::bf16) {
    found = cluster.peak_flops_per_second.find("f16");
  }
  if (found == cluster.peak_flops_per_second.end()) {
    throw UserError(fmt::format("cluster {}: peak_flops_per_second.{} is missing: no time of a kernel follows",
                                cluster.name, to_string(dtype)));
  }
  return found->second;
}

double effective_flops_per_second(const Cluster& cluster, DType dtype) {
  const auto found = cluster.effective_flops_per_second.find(std::string(to_string(dtype)));
  return found == cluster.effective_flops_per_second.end() ? 0.0 : found->second;
}

double effective_bandwidth(const Link& link) {
  return link.effective_bandwidth_bytes_per_second > 0.0 ? link.effective_bandwidth_bytes_per_second
                                                         : link.bandwidth_bytes_per_second;
}

void require_memory_bandwidth(const Cluster& cluster) {
  if (!(cluster.memory_bandwidth_bytes_per_second > 0.0)) {
    throw UserError(fmt::format(
        "cluster {}: memory_bandwidth_bytes_per_second is missing: no time of a memory-bound kernel follows",
        cluster.name));
  }
}

}  // namespace strata
