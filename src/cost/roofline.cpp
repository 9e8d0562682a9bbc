#include "cost/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cost/kernel_work.hpp"
#include "cost/peak_rate.hpp"

namespace strata {
namespace {

struct Sum {
  std::int64_t count = 0;
  RooflineCost cost;
};

void add(Sum& sum, const RooflineCost& cost) {
  ++sum.count;
  sum.cost.bytes += cost.bytes;
  sum.cost.flops += cost.flops;
  sum.cost.seconds += cost.seconds;
}

/// The device and the rates that the Program's types of arithmetic need.
std::string device_text(const Program& program, const Cluster& cluster) {
  std::string text = fmt::format("# on {} of cluster {}, by nameplate: {:.6g} GB/s", cluster.device, cluster.name,
                                 cluster.memory_bandwidth_bytes_per_second * 1e-9);
  std::set<DType> dtypes;
  for (const Instruction& in : program.body) {
    if (!in.is_collective() && flops(in) > 0.0) dtypes.insert(compute_dtype(program, in));
  }
  for (const DType dtype : dtypes) {
    text += fmt::format(", {:.6g} TFLOP/s in {}", peak_flops_per_second(cluster, dtype) * 1e-12, to_string(dtype));
  }
  return text + "\n";
}

}  // namespace

RooflineCost roofline_cost(const Program& program, const Instruction& instruction, const Cluster& cluster) {
  require_memory_bandwidth(cluster);
  RooflineCost cost{.bytes = bytes_touched(program, instruction), .flops = flops(instruction)};
  const double memory_seconds = static_cast<double>(cost.bytes) / cluster.memory_bandwidth_bytes_per_second;
  const double arithmetic_seconds =
      cost.flops > 0.0 ? cost.flops / peak_flops_per_second(cluster, compute_dtype(program, instruction)) : 0.0;
  cost.seconds = std::max(memory_seconds, arithmetic_seconds);
  cost.is_memory_bound = memory_seconds >= arithmetic_seconds;
  return cost;
}

std::string roofline_text(const Program& program, const Cluster& cluster) {
  std::string text = device_text(program, cluster);
  text += fmt::format("# {:>4} {:<9} {:<28} {:>14} {:>12} {:>12}  {:<7} {}\n", "", "phase", "kernel", "bytes", "GFLOP",
                      "us", "bound", "name");
  std::map<std::string, Sum, std::less<>> kernels;
  Sum all;
  Sum collectives;
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    if (in.is_collective()) {
      const RooflineCost sent{.bytes = bytes_sent(program, in)};
      add(collectives, sent);
      text += fmt::format("{:>6} {:<9} {:<28} {:>14} {:>12} {:>12}  {:<7} {}\n", i, to_string(in.phase),
                          to_string(in.collective), sent.bytes, "", "", "link", in.name);
      continue;
    }
    const RooflineCost cost = roofline_cost(program, in, cluster);
    const std::string kernel =
        fmt::format("{} {}", kernel_signature(in.kernel).name, to_string(compute_dtype(program, in)));
    add(kernels[kernel], cost);
    add(all, cost);
    text += fmt::format("{:>6} {:<9} {:<28} {:>14} {:>12.3f} {:>12.2f}  {:<7} {}\n", i, to_string(in.phase), kernel,
                        cost.bytes, cost.flops * 1e-9, cost.seconds * 1e6, cost.is_memory_bound ? "memory" : "compute",
                        in.name);
  }
  std::vector<std::pair<std::string, Sum>> longest(kernels.begin(), kernels.end());
  std::ranges::stable_sort(longest, std::ranges::greater{},
                           [](const auto& entry) { return entry.second.cost.seconds; });
  longest.emplace_back("all kernels", all);
  text += fmt::format("\n# {:<28} {:>6} {:>16} {:>12} {:>12} {:>7}\n", "kernel", "count", "bytes", "GFLOP", "us", "%");
  for (const auto& [kernel, sum] : longest) {
    const double share = all.cost.seconds > 0.0 ? 100.0 * sum.cost.seconds / all.cost.seconds : 0.0;
    text += fmt::format("{:<30} {:>6} {:>16} {:>12.3f} {:>12.2f} {:>7.2f}\n", kernel, sum.count, sum.cost.bytes,
                        sum.cost.flops * 1e-9, sum.cost.seconds * 1e6, share);
  }
  if (collectives.count > 0) {
    text += fmt::format("{:<30} {:>6} {:>16}\n", "collectives, sent", collectives.count, collectives.cost.bytes);
  }
  return text;
}

}  // namespace strata
