#include "interchange/chrome.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace strata {
namespace {

std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20U) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

/// Microseconds with all three decimals: the unit of the trace format, no digit of the nanoseconds lost.
std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

}  // namespace

std::string to_chrome_trace(const Timeline& timeline, std::span<const MemorySample> memory) {
  // Event times start anew with each step. On the trace's one axis a step begins where the slowest rank ended the one
  // before.
  std::map<std::int64_t, std::int64_t> step_begin_ns;
  std::set<std::pair<int, int>> rows;  // (rank, stream) that have events
  for (const TimelineEvent& event : timeline.events) {
    std::int64_t& length = step_begin_ns[event.step];
    length = std::max(length, event.end_ns);
    rows.emplace(event.rank, event.stream);
  }
  std::int64_t begin_ns = 0;
  for (auto& [step, length] : step_begin_ns) {
    begin_ns += std::exchange(length, begin_ns);
  }

  std::vector<std::string> lines;
  int named_rank = -1;
  for (const auto& [rank, stream] : rows) {
    if (rank != named_rank) {
      named_rank = rank;
      lines.push_back(
          fmt::format(R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})", rank));
    }
    lines.push_back(fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", rank,
                                stream, json_string(timeline.streams[static_cast<std::size_t>(stream)])));
  }
  for (const TimelineEvent& event : timeline.events) {
    lines.push_back(fmt::format(
        R"({{"name":{},"cat":{},"ph":"X","ts":{},"dur":{},"pid":{},"tid":{},"args":{{"step":{},"instruction":{},"bytes_sent":{}}}}})",
        json_string(timeline.instructions[static_cast<std::size_t>(event.instruction)]),
        json_string(timeline.simulated ? "simulated" : "measured"),
        microseconds(step_begin_ns[event.step] + event.begin_ns), microseconds(event.end_ns - event.begin_ns),
        event.rank, event.stream, event.step, event.instruction, event.bytes_sent));
  }
  for (const MemorySample& sample : memory) {
    std::string bytes;
    for (int k = 0; k < num_categories; ++k) {
      bytes +=
          fmt::format("{}{}:{}", k == 0 ? "" : ",", json_string(to_string(static_cast<Category>(k))), sample.bytes[k]);
    }
    lines.push_back(fmt::format(R"({{"name":"memory bytes","ph":"C","ts":{},"pid":{},"args":{{{}}}}})",
                                microseconds(sample.time_ns), sample.rank, bytes));
  }
  return fmt::format("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", fmt::join(lines, ",\n"));
}

}  // namespace strata
