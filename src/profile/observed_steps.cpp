#include "profile/observed_steps.hpp"

#include <algorithm>
#include <cstdint>

#include "base/intervals.hpp"
#include "base/median.hpp"

namespace strata::profile {

void ObservedSteps::add(const Program& program, std::span<const TimelineEvent> events,
                        const StepMeasurement& measurement) {
  std::vector<Interval> computing;
  std::vector<Interval> communicating;
  std::map<Kernel*, std::pair<std::int64_t, int>> of_this_step;  // nanoseconds, instances
  for (const TimelineEvent& e : events) {
    const Instruction& in = program.body[static_cast<std::size_t>(e.instruction)];
    if (in.is_collective()) {
      communicating.emplace_back(e.begin_ns, e.end_ns);
      continue;
    }
    computing.emplace_back(e.begin_ns, e.end_ns);
    KernelShape shape = kernel_shape(program, in);
    Kernel& kernel = kernels[{shape.kind, shape.sizes}];
    kernel.shape = std::move(shape);
    auto& [nanoseconds, instances] = of_this_step[&kernel];
    nanoseconds += e.end_ns - e.begin_ns;
    ++instances;
  }
  for (const auto& [kernel, total] : of_this_step) {
    // At least the clock's resolution, where a kernel is over before it can tell.
    const auto nanoseconds = static_cast<double>(std::max<std::int64_t>(1, total.first));
    kernel->seconds.push_back(nanoseconds * 1e-9 / total.second);
  }
  both_seconds.push_back(static_cast<double>(common_ns(computing, communicating)) * 1e-9);
  compute_seconds.push_back(measurement.compute_seconds);
  communication_seconds.push_back(measurement.communication_seconds);
  other_seconds.push_back(measurement.step_seconds - measurement.compute_seconds - measurement.exposed_seconds);
}

void ObservedSteps::add(const ObservedSteps& other) {
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (const auto& [key, kernel] : other.kernels) {
    kernels[key].shape = kernel.shape;
    append(kernels[key].seconds, kernel.seconds);
  }
  append(compute_seconds, other.compute_seconds);
  append(communication_seconds, other.communication_seconds);
  append(both_seconds, other.both_seconds);
  append(other_seconds, other.other_seconds);
}

std::vector<KernelTime> kernel_times(const ObservedSteps& steps, int ranks_on_node) {
  std::vector<KernelTime> rows;
  for (const auto& [key, kernel] : steps.kernels) {
    rows.push_back({.kind = kernel.shape.kind,
                    .sizes = kernel.shape.sizes,
                    .work = kernel.shape.work,
                    .ranks_on_node = ranks_on_node,
                    .seconds = median(kernel.seconds),
                    .num_measured = static_cast<int>(kernel.seconds.size())});
  }
  return rows;
}

std::vector<KernelTime> mean_by_shape(std::span<const KernelTime> of_ranks) {
  std::map<std::pair<std::string, std::vector<double>>, std::vector<KernelTime>> by_shape;
  for (const KernelTime& row : of_ranks) by_shape[{row.kind, row.sizes}].push_back(row);
  std::vector<KernelTime> all;
  for (const auto& [shape, rows] : by_shape) {
    all.push_back(rows.front());
    double sum = 0.0;
    for (const KernelTime& row : rows) sum += row.seconds;
    all.back().seconds = sum / static_cast<double>(rows.size());
  }
  return all;
}

double slowdown(double before, double after, double both) {
  if (both <= 0.0) return 1.0;
  const double alone = both - (after - before);
  return std::max(1.0, both / std::max(alone, 0.1 * both));
}

}  // namespace strata::profile
