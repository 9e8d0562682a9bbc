#include "sim/overlapping_steps.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/intervals.hpp"
#include "ir/program/repetition.hpp"

namespace strata::sim {
namespace {

/// Events of one class.
struct EventsOfSteps {
  std::vector<std::vector<TimelineEvent>> by_step;
  std::vector<Interval> kernels;  ///< of all steps
};

/// The events of each rank, which stand together in @p events.
std::map<int, std::span<const TimelineEvent>> events_of_ranks(std::span<const TimelineEvent> events) {
  std::map<int, std::span<const TimelineEvent>> of_ranks;
  while (!events.empty()) {
    const int rank = events.front().rank;
    const auto end = std::ranges::find_if(events, [&](const TimelineEvent& event) { return event.rank != rank; });
    const auto num_events = static_cast<std::size_t>(end - events.begin());
    of_ranks[rank] = events.first(num_events);
    events = events.subspan(num_events);
  }
  return of_ranks;
}

EventsOfSteps sorted_by_step(const Program& program, const InstructionList& all, std::span<const TimelineEvent> events,
                             int num_steps) {
  EventsOfSteps result;
  result.by_step.resize(static_cast<std::size_t>(num_steps));
  for (TimelineEvent event : events) {
    const Instance& origin = all.origin(static_cast<std::size_t>(event.instruction));
    const Instruction& in = program.body[static_cast<std::size_t>(origin.instruction)];
    if (!in.is_collective()) result.kernels.emplace_back(event.begin_ns, event.end_ns);
    event.instruction = origin.instruction;
    event.step = training_step(program, in, origin.repetition);
    result.by_step[static_cast<std::size_t>(event.step)].push_back(event);
  }
  return result;
}

/// Nanoseconds of @p intervals, which do not overlap each other, inside @p from to @p to.
std::int64_t inside(const std::vector<Interval>& intervals, std::int64_t from, std::int64_t to) {
  std::int64_t sum = 0;
  for (const auto& [begin, end] : intervals) {
    sum += std::max<std::int64_t>(0, std::min(end, to) - std::max(begin, from));
  }
  return sum;
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// What the steps of one class took; adds their events to @p result.
void add_steps(const Program& program, const EventsOfSteps& events, double overhead_seconds, bool keeps_events,
               std::size_t of_class, SimulationResult& result) {
  std::int64_t ended = 0;
  for (std::size_t s = 0; s < events.by_step.size(); ++s) {
    const std::vector<TimelineEvent>& of_step = events.by_step[s];
    std::int64_t begin = ended;
    std::int64_t end = ended;
    std::vector<Interval> transfers;
    SimulatedStep& step = result.steps[s][of_class];
    for (const TimelineEvent& event : of_step) {
      begin = std::min(begin, event.begin_ns);
      end = std::max(end, event.end_ns);
      if (program.body[static_cast<std::size_t>(event.instruction)].is_collective()) {
        transfers.emplace_back(event.begin_ns, event.end_ns);
      } else {
        step.compute_seconds += seconds(event.end_ns - event.begin_ns);
      }
    }
    step.begin_ns = begin;
    step.step_seconds = seconds(end - ended) + overhead_seconds;
    step.exposed_seconds = seconds(end - ended - inside(events.kernels, ended, end));
    step.communication_seconds = seconds(union_ns(std::move(transfers)));
    ended = end;
    if (!keeps_events) continue;
    for (TimelineEvent event : of_step) {
      // The step's clock starts with it: at its first event where that began before the step before ended.
      event.begin_ns -= begin;
      event.end_ns -= begin;
      result.events.push_back(event);
    }
    std::ranges::sort(result.events.end() - static_cast<std::ptrdiff_t>(of_step.size()), result.events.end(), {},
                      &TimelineEvent::instruction);
  }
}

}  // namespace

SimulationResult simulate_overlapping(const Job& job, const CostModel& costs, const SimulationOptions& options,
                                      const SimulateOnce& simulate_once) {
  const StepRange steps{0, options.num_steps - 1};
  std::vector<InstructionList> lists;
  for (const Program* program : job.programs) lists.push_back(unrolled(*program, steps));
  SimulationOptions once = options;
  once.num_steps = 1;
  once.keeps_events = true;
  const SimulationResult all = simulate_once(lists, once);

  SimulationResult result;
  result.num_events = all.num_events;
  int missing = 0;
  for (const Program* program : job.programs) missing = std::max(missing, depth(*program) * program->steps_per_body);
  result.steady_step = std::max(0, options.num_steps - 1 - missing);
  result.seconds_by_basis = all.seconds_by_basis;
  for (double& of_basis : result.seconds_by_basis) of_basis /= options.num_steps;
  result.steps.assign(static_cast<std::size_t>(options.num_steps), std::vector<SimulatedStep>(lists.size()));
  std::map<int, std::span<const TimelineEvent>> events = events_of_ranks(all.events);
  for (std::size_t c = 0; c < lists.size(); ++c) {
    const Program& program = *job.programs[c];
    add_steps(program, sorted_by_step(program, lists[c], events[program.rank], options.num_steps),
              costs.step_overhead_seconds(), options.keeps_events, c, result);
  }
  return result;
}

}  // namespace strata::sim
