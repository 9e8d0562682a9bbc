#include "run/gathered_timeline.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace strata::run {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace

void gather_timeline(const comm::World& world, const Program& program, std::span<const TimelineEvent> events,
                     const std::function<void(const std::vector<results::EventRow>&)>& add) {
  const std::string mine(reinterpret_cast<const char*>(events.data()), events.size() * sizeof(TimelineEvent));
  std::string my_names;  // of instructions: three lines each
  for (const Instruction& in : program.body) {
    my_names += fmt::format("{}\n{}\n{}\n", instruction_label(in), to_string(in.phase), in.micro_batch);
  }
  const std::vector<std::string> of_ranks = world.gather(mine);
  const std::vector<std::string> names_of_ranks = world.gather(my_names);
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    const std::string& bytes = of_ranks[r];
    std::vector<results::EventRow> rows;
    const std::vector<std::string_view> names = lines_of(names_of_ranks[r]);
    const auto* theirs = reinterpret_cast<const TimelineEvent*>(bytes.data());
    for (std::size_t i = 0; i < bytes.size() / sizeof(TimelineEvent); ++i) {
      const TimelineEvent& e = theirs[i];
      const std::size_t first_line = 3 * static_cast<std::size_t>(e.instruction);
      rows.push_back({.rank = e.rank,
                      .step = e.step,
                      .stream = e.stream,
                      .instruction = e.instruction,
                      .name = std::string(names[first_line]),
                      .begin_seconds = static_cast<double>(e.begin_ns) * 1e-9,
                      .end_seconds = static_cast<double>(e.end_ns) * 1e-9,
                      .sent_bytes = e.bytes_sent,
                      .phase = std::string(names[first_line + 1]),
                      .micro_batch = std::stoll(std::string(names[first_line + 2]))});
    }
    add(rows);
  }
}

}  // namespace strata::run
