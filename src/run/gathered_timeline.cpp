#include "run/gathered_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "predict/timeline_rows.hpp"

namespace strata::run {
namespace {

/// An event and when the clock of its step started. Plain bytes, sent as they are.
struct SentEvent {
  TimelineEvent event;
  std::int64_t step_begin_ns = 0;
};
static_assert(std::is_trivially_copyable_v<SentEvent> && std::is_trivially_copyable_v<MemorySample>);

template <class Item>
std::string bytes_of(const std::vector<Item>& items) {
  return {reinterpret_cast<const char*>(items.data()), items.size() * sizeof(Item)};
}

template <class Item>
std::vector<Item> items_of(const std::string& bytes) {
  std::vector<Item> items(bytes.size() / sizeof(Item));
  if (!items.empty()) std::memcpy(items.data(), bytes.data(), items.size() * sizeof(Item));
  return items;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

template <class Clock>
std::int64_t now_ns_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

/// From the clock of events, which counts from the node's start, to Unix time, which nodes share. Of several readings
/// the one between which the least time passed.
std::int64_t unix_time_minus_steady_ns() {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t difference = 0;
  for (int reading = 0; reading < 8; ++reading) {
    const std::int64_t before = now_ns_of<std::chrono::steady_clock>();
    const std::int64_t unix_ns = now_ns_of<std::chrono::system_clock>();
    const std::int64_t after = now_ns_of<std::chrono::steady_clock>();
    if (after - before >= least) continue;
    least = after - before;
    difference = unix_ns - (before + least / 2);
  }
  return difference;
}

}  // namespace

void gather_timeline(const comm::World& world, const Program& program, const std::vector<RecordedStep>& steps,
                     StepRange counted, const std::function<void(const TimelineRows&)>& add) {
  const std::int64_t to_unix_ns = unix_time_minus_steady_ns();
  std::vector<SentEvent> my_events;
  for (const RecordedStep& step : steps) {
    if (!counted.contains(step.step)) continue;
    for (const TimelineEvent& event : step.events) my_events.push_back({event, step.begin_ns + to_unix_ns});
  }
  std::vector<MemorySample> my_memory = memory_over_time(program, steps, counted);
  for (MemorySample& sample : my_memory) sample.time_ns += to_unix_ns;
  std::string my_names;  // of instructions: three lines each
  for (const Instruction& in : program.body) {
    my_names += fmt::format("{}\n{}\n{}\n", instruction_label(in), to_string(in.phase), in.micro_batch);
  }
  const std::vector<std::string> events_of_ranks = world.gather(bytes_of(my_events));
  const std::vector<std::string> memory_of_ranks = world.gather(bytes_of(my_memory));
  const std::vector<std::string> names_of_ranks = world.gather(my_names);
  const std::int64_t zero_ns = my_memory.empty() ? 0 : my_memory.front().time_ns;
  for (std::size_t r = 0; r < events_of_ranks.size(); ++r) {
    TimelineRows rows;
    const std::vector<std::string_view> names = lines_of(names_of_ranks[r]);
    for (const SentEvent& sent : items_of<SentEvent>(events_of_ranks[r])) {
      const TimelineEvent& e = sent.event;
      const std::size_t first_line = 3 * static_cast<std::size_t>(e.instruction);
      rows.events.push_back({.rank = e.rank,
                             .step = e.step,
                             .stream = e.stream,
                             .instruction = e.instruction,
                             .name = std::string(names[first_line]),
                             .begin_seconds = static_cast<double>(e.begin_ns) * 1e-9,
                             .end_seconds = static_cast<double>(e.end_ns) * 1e-9,
                             .sent_bytes = e.bytes_sent,
                             .phase = std::string(names[first_line + 1]),
                             .micro_batch = std::stoll(std::string(names[first_line + 2])),
                             .step_begin_seconds = static_cast<double>(sent.step_begin_ns - zero_ns) * 1e-9});
    }
    for (const MemorySample& sample : items_of<MemorySample>(memory_of_ranks[r])) {
      rows.memory.push_back(predict::memory_row(sample, zero_ns));
    }
    add(rows);
  }
}

}  // namespace strata::run
