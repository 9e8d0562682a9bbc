/// @file
/// A timeline's checks and its text, a line an event.

#include "ir/timeline/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

void append_names(std::string& text, std::string_view word, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    STRATA_INVARIANT(names[i].find('\n') == std::string::npos, "a name of a timeline is one line");
    text += fmt::format("{} {} {}\n", word, i, names[i]);
  }
}

/// Takes words off the front of one line.
struct EventLine {
  std::string_view rest;
  int number = 0;

  [[noreturn]] void fail(const std::string& message) const {
    throw UserError(fmt::format("timeline:{}: {}", number, message));
  }

  std::string_view word() {
    const std::size_t space = rest.find(' ');
    const std::string_view found = rest.substr(0, space);
    rest = space == std::string_view::npos ? std::string_view{} : rest.substr(space + 1);
    return found;
  }

  template <class T>
  T integer(std::string_view field) {
    const std::string_view text = word();
    T value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
      fail(fmt::format("`{}` where the integer {} is accepted", text, field));
    }
    return value;
  }

  void end() const {
    if (!rest.empty()) {
      fail(fmt::format("`{}` after the end of the line's fields", rest));
    }
  }
};

}  // namespace

std::string instruction_label(const Instruction& instruction) {
  return fmt::format(
      "{} {}",
      instruction.is_collective() ? to_string(instruction.collective) : kernel_signature(instruction.kernel).name,
      instruction.name);
}

void verify(const Timeline& timeline) {
  std::map<std::tuple<int, std::int64_t, int>, std::size_t> last;  // (rank, step, stream) -> latest event
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    const TimelineEvent& event = timeline.events[i];
    const std::string name = fmt::format("timeline event {} (rank {}, step {}, stream {}, instruction {})", i,
                                         event.rank, event.step, event.stream, event.instruction);
    const auto in_range = [](int id, std::size_t count) { return id >= 0 && static_cast<std::size_t>(id) < count; };
    STRATA_INVARIANT(event.rank >= 0 && event.step >= 0, name + ": negative rank or step");
    STRATA_INVARIANT(in_range(event.stream, timeline.streams.size()),
                     fmt::format("{}: {} streams", name, timeline.streams.size()));
    STRATA_INVARIANT(in_range(event.instruction, timeline.instructions.size()),
                     fmt::format("{}: {} instructions", name, timeline.instructions.size()));
    // The steps of a trace are laid out one behind the other.
    constexpr std::int64_t longest_step_ns = std::int64_t{1} << 50;
    STRATA_INVARIANT(0 <= event.begin_ns && event.begin_ns <= event.end_ns && event.end_ns <= longest_step_ns,
                     fmt::format("{}: begins at {} ns and ends at {} ns", name, event.begin_ns, event.end_ns));
    STRATA_INVARIANT(event.bytes_sent >= 0, fmt::format("{}: sent {} bytes", name, event.bytes_sent));
    if (i > 0) {
      const TimelineEvent& before = timeline.events[i - 1];
      STRATA_INVARIANT(
          std::tie(before.rank, before.step, before.begin_ns) <= std::tie(event.rank, event.step, event.begin_ns),
          name + ": events are sorted by rank, step and begin");
    }
    const auto [place, is_new] = last.emplace(std::tuple{event.rank, event.step, event.stream}, i);
    if (!is_new) {
      const TimelineEvent& before = timeline.events[place->second];
      STRATA_INVARIANT(before.end_ns <= event.begin_ns,
                       fmt::format("{}: begins at {} ns, before instruction {} of the stream ends at {} ns", name,
                                   event.begin_ns, before.instruction, before.end_ns));
      place->second = i;
    }
  }
}

std::string to_text(const Timeline& timeline) {
  std::string text = fmt::format("timeline {}\n", timeline.simulated ? "simulated" : "measured");
  append_names(text, "stream", timeline.streams);
  append_names(text, "instruction", timeline.instructions);
  for (const TimelineEvent& event : timeline.events) {
    text += fmt::format("event {} {} {} {} {} {} {}\n", event.rank, event.step, event.stream, event.instruction,
                        event.begin_ns, event.end_ns, event.bytes_sent);
  }
  return text;
}

Timeline parse_timeline(std::string_view text) {
  if (text.empty()) {
    throw UserError("timeline:1: empty; accepted: `timeline simulated` or `timeline measured`");
  }
  Timeline timeline;
  const auto read_name = [](EventLine& line, std::string_view word, std::vector<std::string>& names) {
    if (line.integer<std::size_t>("number") != names.size()) {
      line.fail(fmt::format("{}s are numbered in order; accepted: {}", word, names.size()));
    }
    names.emplace_back(line.rest);
  };
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    EventLine line{text.substr(0, end), number};
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    const std::string_view word = line.word();
    if (number == 1) {
      if (word != "timeline" || (line.rest != "simulated" && line.rest != "measured")) {
        line.fail("accepted: `timeline simulated` or `timeline measured`");
      }
      timeline.simulated = line.rest == "simulated";
    } else if (word == "stream") {
      read_name(line, word, timeline.streams);
    } else if (word == "instruction") {
      read_name(line, word, timeline.instructions);
    } else if (word == "event") {
      TimelineEvent event;
      event.rank = line.integer<int>("rank");
      event.step = line.integer<std::int64_t>("step");
      event.stream = line.integer<int>("stream");
      event.instruction = line.integer<int>("instruction");
      event.begin_ns = line.integer<std::int64_t>("begin_ns");
      event.end_ns = line.integer<std::int64_t>("end_ns");
      event.bytes_sent = line.integer<std::int64_t>("bytes_sent");
      line.end();
      timeline.events.push_back(event);
    } else {
      line.fail(fmt::format("`{}`; accepted: stream, instruction, event", word));
    }
  }
  return timeline;
}

}  // namespace strata
