#include "predict/repeated_micro_batches.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "ir/program/repetition.hpp"

namespace strata::predict {
namespace {

constexpr int first_compared = 2, last_compared = 4;
/// Of events in whole nanoseconds, two of which are subtracted from two others.
constexpr double rounding_ns = 2.0;

/// Same work, whatever it is called.
bool are_alike(const Instruction& a, const Instruction& b) {
  return a.kernel == b.kernel && a.phase == b.phase && a.stream == b.stream && a.is_collective() == b.is_collective() &&
         (!a.is_collective() || (a.collective == b.collective && a.group == b.group));
}

/// Instructions of the compared micro-batches, in order; empty where they are not alike.
using Compared = std::array<std::vector<std::size_t>, last_compared - first_compared + 1>;

/// @param sub_batches that instructions count within a micro-batch.
Compared compared_instructions(const Program& program, int sub_batches) {
  Compared compared;
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const int micro_batch = program.body[i].micro_batch / sub_batches;
    if (micro_batch < first_compared || micro_batch > last_compared) continue;
    compared[static_cast<std::size_t>(micro_batch - first_compared)].push_back(i);
  }
  for (const std::vector<std::size_t>& of_one : compared) {
    const bool repeats = std::ranges::equal(of_one, compared.front(), [&](std::size_t a, std::size_t b) {
      return are_alike(program.body[a], program.body[b]);
    });
    if (!repeats) return {};
  }
  return compared;
}

/// @param events of one class, of one step that no other one overlaps.
bool repeat(const Program& program, int sub_batches, std::span<const TimelineEvent> events, double period_ns) {
  const Compared compared = compared_instructions(program, sub_batches);
  if (compared.front().empty()) return false;
  std::vector<const TimelineEvent*> of_instruction(program.body.size());
  for (const TimelineEvent& event : events) of_instruction[static_cast<std::size_t>(event.instruction)] = &event;
  for (std::size_t m = 1; m < compared.size(); ++m) {
    for (std::size_t i = 0; i < compared[m].size(); ++i) {
      const TimelineEvent* earlier = of_instruction[compared[m - 1][i]];
      const TimelineEvent* later = of_instruction[compared[m][i]];
      if (earlier == nullptr || later == nullptr) return false;
      const auto begins = static_cast<double>(later->begin_ns - earlier->begin_ns);
      const auto ends = static_cast<double>(later->end_ns - earlier->end_ns);
      if (std::abs(begins - period_ns) > rounding_ns || std::abs(ends - period_ns) > rounding_ns) return false;
    }
  }
  return true;
}

}  // namespace

bool has_many_alike_micro_batches(const Plan& plan) {
  return plan.schedule.kind == ScheduleKind::simultaneous && plan.schedule.micro_batches > 2 * compared_micro_batches;
}

bool micro_batches_repeat(const Plan& plan, const LoweredJob& lowered, const SimulationResult& simulation,
                          double period_seconds) {
  if (simulation.steps.size() != 1 || !std::ranges::all_of(lowered.programs, is_repeated_alone)) return false;
  std::map<int, std::vector<TimelineEvent>> by_representative;
  for (const TimelineEvent& event : simulation.events) by_representative[event.rank].push_back(event);
  if (by_representative.size() != lowered.programs.size()) return false;
  return std::ranges::all_of(lowered.programs, [&](const Program& program) {
    const auto events = by_representative.find(program.rank);
    return events != by_representative.end() &&
           repeat(program, plan.schedule.sub_batches, events->second, period_seconds * 1e9);
  });
}

}  // namespace strata::predict
