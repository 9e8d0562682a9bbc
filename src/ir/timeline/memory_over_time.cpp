#include "ir/timeline/memory_over_time.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace strata {
namespace {

/// A buffer begins to live, or ends.
struct Change {
  std::int64_t time_ns = 0;
  Category category = Category::activation;
  std::int64_t bytes = 0;
};

/// By time; what ends at a moment makes room for what begins at it.
std::vector<Change> changes_of(const Program& program, std::span<const RecordedStep> steps) {
  std::vector<Change> changes;
  for (const RecordedStep& step : steps) {
    for (const TimelineEvent& event : step.events) {
      const Instruction& in = program.body.at(static_cast<std::size_t>(event.instruction));
      const auto change = [&](int id, std::int64_t time_ns, std::int64_t sign) {
        const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
        changes.push_back({step.begin_ns + time_ns, buffer.category, sign * buffer.size_bytes()});
      };
      for (const int id : in.allocs) change(id, event.begin_ns, 1);
      for (const int id : in.frees) change(id, event.end_ns, -1);
    }
  }
  std::ranges::stable_sort(changes, {}, [](const Change& c) { return std::pair(c.time_ns, c.bytes > 0); });
  return changes;
}

}  // namespace

std::vector<MemorySample> memory_over_time(const Program& program, std::span<const RecordedStep> steps,
                                           StepRange counted) {
  std::int64_t from_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t until_ns = std::numeric_limits<std::int64_t>::min();
  for (const RecordedStep& step : steps) {
    if (!counted.contains(step.step)) continue;
    from_ns = std::min(from_ns, step.begin_ns);
    for (const TimelineEvent& event : step.events) until_ns = std::max(until_ns, step.begin_ns + event.end_ns);
  }
  if (until_ns < from_ns) return {};

  MemorySample live{.rank = program.rank, .time_ns = from_ns};
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent) live.bytes[static_cast<int>(buffer.category)] += buffer.size_bytes();
  }
  std::vector<MemorySample> samples;
  for (const Change& change : changes_of(program, steps)) {
    if (change.time_ns > until_ns) break;
    if (change.time_ns > live.time_ns) {
      samples.push_back(live);
      live.time_ns = change.time_ns;
    }
    live.bytes[static_cast<int>(change.category)] += change.bytes;
  }
  samples.push_back(live);
  return samples;
}

}  // namespace strata
