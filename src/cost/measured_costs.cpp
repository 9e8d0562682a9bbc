/// @file
/// Times looked up in a profile. A kernel of a measured shape has its measured time; others are placed between the
/// measured shapes of their kind: rate = work / time varies slowly with the logarithms of the sizes, so the logarithm
/// of the rate is averaged over the nearest shapes, weighted by 1/distance⁴ (Shepard 1968). Outside of the measured
/// sizes the same number is marked extrapolated.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "cost/collective_formulas.hpp"
#include "cost/cost_model.hpp"
#include "cost/kernel_work.hpp"

namespace strata {
namespace {

constexpr std::size_t num_neighbours = 6;

/// All measured shapes of one kind.
class KernelTable {
 public:
  void add(const KernelTime& row) {
    rows_.push_back({logarithms(row.sizes), std::log(row.work / row.seconds), row.seconds});
  }

  Cost at(const KernelShape& shape) const {
    const std::vector<double> place = logarithms(shape.sizes);
    std::vector<std::pair<double, double>> near;  // squared distance, log rate
    std::vector<double> low = rows_.front().place;
    std::vector<double> high = low;
    for (const Row& row : rows_) {
      double squared = 0.0;
      for (std::size_t d = 0; d < place.size(); ++d) {
        squared += (row.place[d] - place[d]) * (row.place[d] - place[d]);
        low[d] = std::min(low[d], row.place[d]);
        high[d] = std::max(high[d], row.place[d]);
      }
      if (squared == 0.0) return {row.seconds, Basis::measured};
      near.emplace_back(squared, row.log_rate);
    }
    const std::size_t count = std::min(num_neighbours, near.size());
    std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end());
    double weights = 0.0;
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      const double weight = 1.0 / (near[i].first * near[i].first);
      weights += weight;
      sum += weight * near[i].second;
    }
    bool inside = true;
    for (std::size_t d = 0; d < place.size(); ++d) inside = inside && low[d] <= place[d] && place[d] <= high[d];
    return {shape.work / std::exp(sum / weights), inside ? Basis::interpolated : Basis::extrapolated};
  }

 private:
  struct Row {
    std::vector<double> place;
    double log_rate;
    double seconds;
  };
  static std::vector<double> logarithms(const std::vector<double>& sizes) {
    std::vector<double> result;
    for (const double size : sizes) result.push_back(std::log2(size));
    return result;
  }
  std::vector<Row> rows_;
};

class MeasuredCosts final : public CostModel {
 public:
  MeasuredCosts(const CostProfile& profile, int ranks_on_node, Transports transports)
      : CostModel(1), ranks_on_node_(ranks_on_node), transports_(std::move(transports)), machine_(profile.machine) {
    std::string measured;
    for (const KernelTime& row : profile.kernels) {
      if (row.ranks_on_node == ranks_on_node_) kernels_[row.kind].add(row);
      const std::string count = fmt::format(" {}", row.ranks_on_node);
      if ((measured + " ").find(count + " ") == std::string::npos) measured += count;
    }
    if (kernels_.empty()) {
      throw UserError(
          fmt::format("profile of {}: no kernel was measured with {} ranks on a node, only with{}; run "
                      "`mpiexec -n {} strata profile`",
                      machine_, ranks_on_node_, measured.empty() ? " none" : measured, ranks_on_node_));
    }
    for (const CollectiveTime& row : profile.collectives) {
      collectives_[key(row.kind, row.group, row.transport)][row.bytes] = row.seconds;
    }
    for (const Interference& row : profile.interference) {
      if (row.ranks_on_node == ranks_on_node_ && row.transport == transports_.of_all_ranks) {
        slowdown_ = {row.compute_slowdown, row.communication_slowdown};
      }
    }
    const auto overhead = profile.step_overhead_seconds.find(ranks_on_node_);
    if (overhead != profile.step_overhead_seconds.end()) step_overhead_seconds_ = overhead->second;
  }

  CostSource source() const override { return CostSource::measured; }
  std::string description() const override {
    return fmt::format("measured: profile of {} with {} ranks a node over {}", machine_, ranks_on_node_,
                       transports_.of_all_ranks);
  }

  Cost kernel(const Program& program, const Instruction& instruction) const override {
    const KernelShape shape = kernel_shape(program, instruction);
    const auto found = kernels_.find(shape.kind);
    if (found == kernels_.end()) {
      throw UserError(fmt::format("profile of {}: no time of `{}` with {} ranks on a node ({} at {})", machine_,
                                  shape.kind, ranks_on_node_, instruction.name, fmt::join(shape.sizes, "×")));
    }
    return found->second.at(shape);
  }

  CollectiveCost collective(Collective kind, std::int64_t bytes, const Placement& place) const override {
    const Factor& group = place.shape;
    if (group.total() <= 1 || bytes == 0) return {0.0, Basis::formula, 0};
    if (transports_.emulated) {
      const Link& link = group.nodes == 1 ? transports_.emulated->inside : transports_.emulated->between;
      return {ring_seconds(kind, bytes, group.total(), link.latency_seconds, 1.0 / link.bandwidth_bytes_per_second),
              Basis::formula, 0};
    }
    const auto found = collectives_.find(key(kind, group, transports_.name(group)));
    if (found == collectives_.end()) {
      throw UserError(fmt::format("profile of {}: no time of {} on {} ranks over {}", machine_, to_string(kind),
                                  to_string(group), transports_.name(group)));
    }
    const std::map<std::int64_t, double>& times = found->second;
    const auto above = times.lower_bound(bytes);
    if (above != times.end() && above->first == bytes) return {above->second, Basis::measured, 0};
    if (above == times.begin()) return {above->second, Basis::extrapolated, 0};  // smaller than any: latency alone
    const auto below = std::prev(above);
    if (above == times.end()) {  // larger than any: at the rate of the largest
      return {below->second * static_cast<double>(bytes) / static_cast<double>(below->first), Basis::extrapolated, 0};
    }
    const double share = static_cast<double>(bytes - below->first) / static_cast<double>(above->first - below->first);
    return {below->second + share * (above->second - below->second), Basis::interpolated, 0};
  }

  Slowdown slowdown() const override { return slowdown_; }
  double step_overhead_seconds() const override { return step_overhead_seconds_; }

 private:
  static std::string key(Collective kind, const Factor& group, const std::string& transport) {
    return fmt::format("{} {} {}", to_string(kind), to_string(group), transport);
  }

  int ranks_on_node_;
  Transports transports_;
  std::string machine_;
  std::map<std::string, KernelTable> kernels_;
  std::map<std::string, std::map<std::int64_t, double>> collectives_;  ///< seconds by bytes
  Slowdown slowdown_;
  double step_overhead_seconds_ = 0.0;
};

}  // namespace

std::unique_ptr<CostModel> measured_costs(const CostProfile& profile, int ranks_on_node, const Transports& transports) {
  return std::make_unique<MeasuredCosts>(profile, ranks_on_node, transports);
}

}  // namespace strata
