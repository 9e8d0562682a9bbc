#include "exec/device/step_times.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/intervals.hpp"

namespace strata {
namespace {

constexpr double seconds_per_ns = 1e-9;

}  // namespace

void add_busy_times(const Program& program, std::span<const TimelineEvent> events, StepMeasurement& measurement) {
  std::vector<Interval> kernels;
  std::vector<Interval> collectives;
  for (std::size_t i = 0; i < events.size(); ++i) {
    (program.body[i].is_collective() ? collectives : kernels).emplace_back(events[i].begin_ns, events[i].end_ns);
  }
  measurement.compute_seconds = static_cast<double>(union_ns(std::move(kernels))) * seconds_per_ns;
  measurement.communication_seconds = static_cast<double>(union_ns(std::move(collectives))) * seconds_per_ns;
}

void add_step_times(const Program& program, std::span<const TimelineEvent> events, StepMeasurement& measurement) {
  add_busy_times(program, events, measurement);
  std::int64_t exposed = 0;
  std::int64_t compute_end = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Instruction& in = program.body[i];
    if (in.is_collective() || in.stream != 0) continue;
    std::int64_t collective_end = 0;
    for (const Wait& wait : in.waits) {
      const auto other = static_cast<std::size_t>(wait.instruction);
      if (program.body[other].is_collective()) collective_end = std::max(collective_end, events[other].end_ns);
    }
    exposed += std::max<std::int64_t>(0, std::min(collective_end, events[i].begin_ns) - compute_end);
    compute_end = events[i].end_ns;
  }
  measurement.exposed_seconds = static_cast<double>(exposed) * seconds_per_ns;
}

void set_unknown_times(StepMeasurement& measurement) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  measurement.compute_seconds = unknown;
  measurement.communication_seconds = unknown;
  measurement.exposed_seconds = unknown;
}

}  // namespace strata
