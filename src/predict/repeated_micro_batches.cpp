#include "predict/repeated_micro_batches.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "ir/program/repetition.hpp"
#include "lower/fewer_micro_batches.hpp"
#include "predict/classes_that_meet.hpp"
#include "sim/steady_state.hpp"

namespace strata::predict {
namespace {

/// Of events in whole nanoseconds, two of which are subtracted from two others; where a micro-batch takes long, of
/// those that it is a sum of.
double rounding_ns(double pace_ns) {
  constexpr double of_each = 1e-10;
  return 2.0 + of_each * pace_ns;
}

/// Of one class: its Program, and what its rank did, in the steady step and beside it, on the clock of all steps.
struct ClassEvents {
  const Program* program;
  std::vector<int> micro_batches;  ///< by instruction of the body
  std::span<const TimelineEvent> events;
  std::int64_t steady_step;
};

/// Compares micro-batches of one plan.
class Comparison {
 public:
  explicit Comparison(const ComparedMicroBatches& compared) : compared_(compared) {}

  /// By how much each micro-batch is later than the one that it repeats; nothing: they do not repeat.
  std::optional<double> pace_ns(const ClassEvents& of_class) const {
    const AlikeMicroBatches instructions =
        alike_micro_batches(*of_class.program, of_class.micro_batches, compared_.run);
    if (instructions.size() <= apart()) return std::nullopt;
    std::vector<const TimelineEvent*> of_instruction(of_class.program->body.size());
    for (const TimelineEvent& event : of_class.events) {
      if (event.step == of_class.steady_step) of_instruction[static_cast<std::size_t>(event.instruction)] = &event;
    }
    std::vector<std::vector<const TimelineEvent*>> events;
    std::int64_t begin_ns = std::numeric_limits<std::int64_t>::max(), end_ns = 0;
    for (const std::vector<std::size_t>& of_one : instructions) {
      std::vector<const TimelineEvent*>& of_micro_batch = events.emplace_back();
      for (const std::size_t i : of_one) {
        const TimelineEvent* event = of_micro_batch.emplace_back(of_instruction[i]);
        if (event == nullptr) return std::nullopt;
        begin_ns = std::min(begin_ns, event->begin_ns);
        end_ns = std::max(end_ns, event->end_ns);
      }
    }
    const std::size_t num_repeated = (events.size() - 1) / apart();
    const auto later_ns =
        static_cast<double>(events[num_repeated * apart()].front()->begin_ns - events.front().front()->begin_ns);
    const double pace_ns = later_ns / static_cast<double>(num_repeated);
    for (std::size_t m = apart(); m < events.size(); ++m) {
      const auto is_later = [&](const TimelineEvent* later, const TimelineEvent* earlier) {
        return is_later_by(pace_ns, *later, *earlier);
      };
      if (!std::ranges::equal(events[m], events[m - apart()], is_later)) return std::nullopt;
    }
    const bool is_alone = is_repeated_alone(*of_class.program) || are_alone(of_class, begin_ns, end_ns);
    return is_alone ? std::optional(pace_ns) : std::nullopt;
  }

 private:
  static bool is_later_by(double pace_ns, const TimelineEvent& later, const TimelineEvent& earlier) {
    const auto begins = static_cast<double>(later.begin_ns - earlier.begin_ns);
    const auto ends = static_cast<double>(later.end_ns - earlier.end_ns);
    return std::abs(begins - pace_ns) <= rounding_ns(pace_ns) && std::abs(ends - pace_ns) <= rounding_ns(pace_ns);
  }

  std::size_t apart() const { return static_cast<std::size_t>(compared_.run.apart); }

  /// Only micro-batches of the same step are under way from @p begin_ns to @p end_ns, those compared and what is beside
  /// them.
  bool are_alone(const ClassEvents& of_class, std::int64_t begin_ns, std::int64_t end_ns) const {
    return std::ranges::none_of(of_class.events, [&](const TimelineEvent& event) {
      if (event.begin_ns >= end_ns || event.end_ns <= begin_ns) return false;
      const int m = of_class.micro_batches[static_cast<std::size_t>(event.instruction)];
      return event.step != of_class.steady_step || m < compared_.run.first - compared_.beside ||
             m > compared_.run.last + compared_.beside;
    });
  }

  ComparedMicroBatches compared_;
};

/// Those of the micro-batches from @p first on up to @p end.
std::vector<const Instruction*> instructions_of(const ClassEvents& of_class, int first, int end) {
  std::vector<const Instruction*> all;
  for (std::size_t i = 0; i < of_class.micro_batches.size(); ++i) {
    const int m = of_class.micro_batches[i];
    if (first <= m && m < end) all.push_back(&of_class.program->body[i]);
  }
  return all;
}

/// @throws Unsupported as lowering does.
SimulatedFew simulated_few(PreparedPoint point, const CostModel& costs, int micro_batches, bool keeps_events) {
  point.plan = with_at_most(point.plan, micro_batches);
  point.experiment.simulate.steps = 1;
  SimulationOptions options = simulation_options(point);
  options.keeps_events = keeps_events;
  SimulatedFew few{.lowered = lower_job_uncapped(point), .simulation = {}};
  few.simulation = simulate_steady(few.lowered.job(point.plan.mesh.ranks_per_node), costs, options);
  return few;
}

/// Value of a step with @p times as many micro-batches more than @p few has as that has more than @p fewer.
template <typename Number>
Number of_all(Number few, Number fewer, int times) {
  return few + static_cast<Number>(times) * (few - fewer);
}

SimulationResult simulation_of_all(const SimulatedFew& few, const SimulatedFew& fewer, int times) {
  SimulationResult all;
  std::vector<SimulatedStep>& step = all.steps.emplace_back(few.steady_step());
  for (std::size_t c = 0; c < step.size(); ++c) {
    for (const auto member : {&SimulatedStep::step_seconds, &SimulatedStep::compute_seconds,
                              &SimulatedStep::communication_seconds, &SimulatedStep::exposed_seconds}) {
      step[c].*member = of_all(few.steady_step()[c].*member, fewer.steady_step()[c].*member, times);
    }
  }
  const std::vector<double>& by_basis = few.simulation.seconds_by_basis;
  for (std::size_t basis = 0; basis < by_basis.size(); ++basis) {
    all.seconds_by_basis.push_back(of_all(by_basis[basis], fewer.simulation.seconds_by_basis[basis], times));
  }
  return all;
}

bool needs_no_more_memory(const Plan& plan, const ComparedMicroBatches& compared, const SimulatedFew& few,
                          const SimulatedFew& fewer) {
  const auto repeats = [&](const Program& program) {
    return addresses_repeat(program, micro_batches_of(program, plan.schedule.sub_batches), compared.run);
  };
  return std::ranges::all_of(few.lowered.programs, repeats) &&
         std::ranges::equal(few.lowered.programs, fewer.lowered.programs, {}, peak_bytes, peak_bytes);
}

/// Nothing where those compared do not repeat. @throws Unsupported as lowering does.
/// @param few handed over where they do.
std::optional<RepeatedStep> told_from(const PreparedPoint& point, const CostModel& costs, SimulatedFew& few,
                                      const ComparedMicroBatches& compared) {
  const std::optional<double> pace = pace_seconds(point.plan, compared, few);
  if (!pace) return std::nullopt;
  const SimulatedFew fewer = simulated_few(point, costs, compared.simulated - compared.run.apart, false);
  if (!takes_longer_by(*pace, few, fewer)) return std::nullopt;
  const int times = (point.plan.schedule.micro_batches - compared.simulated) / compared.run.apart;
  results::StepRow more, less;
  set_account(more, point, few.lowered);
  set_account(less, point, fewer.lowered);
  RepeatedStep all{.lowered = {}, .simulation = simulation_of_all(few, fewer, times), .row = {}};
  const bool is_enough = needs_no_more_memory(point.plan, compared, few, fewer);
  all.lowered = is_enough ? std::move(few.lowered) : lower_job_uncapped(point);
  all.row = step_row(point, all.lowered, all.simulation, 0);
  for (std::size_t kind = 0; kind < all.row.sent_bytes.size(); ++kind) {
    all.row.sent_bytes[kind] = of_all(more.sent_bytes[kind], less.sent_bytes[kind], times);
  }
  return all;
}

}  // namespace

std::vector<ComparedMicroBatches> compared_micro_batches(const Plan& plan) {
  constexpr int most_sizes = 3;
  const int micro_batches = plan.schedule.micro_batches;
  const int places = axis_size(plan.mesh, "stage");
  // What is left out is as many times `apart`.
  const auto simulated = [&](int at_least, int apart) { return at_least + (micro_batches - at_least) % apart; };
  std::vector<ComparedMicroBatches> one_size;
  switch (plan.schedule.kind) {
    case ScheduleKind::simultaneous:
      one_size.push_back({.simulated = 6, .run = {.first = 2, .last = 4, .apart = 1}, .beside = 1});
      break;
    case ScheduleKind::one_forward_one_backward:
      for (const int apart : {1, 2}) {
        one_size.push_back({.simulated = simulated(4 * places + 3, 2),
                            .run = {.first = 2 * places, .last = 3 * places + 1 + apart, .apart = apart},
                            .beside = places});
      }
      break;
    case ScheduleKind::interleaved:
      one_size.push_back({.simulated = simulated(8 * places + 2, places),
                          .run = {.first = 3 * places, .last = 6 * places + 1, .apart = places},
                          .beside = 2 * places});
      break;
    default: break;
  }
  std::vector<ComparedMicroBatches> all;
  for (int size = 0; size < most_sizes && !one_size.empty(); ++size) {
    const int simulated_before = one_size.back().simulated;
    const int more = simulated_before - simulated_before % one_size.back().run.apart;
    for (ComparedMicroBatches& compared : one_size) {
      if (micro_batches <= 2 * compared.simulated) return all;
      all.push_back(compared);
      compared.simulated += more;
      compared.run.first += more;
      compared.run.last += more;
    }
  }
  return all;
}

std::optional<double> pace_seconds(const Plan& plan, const ComparedMicroBatches& compared, const SimulatedFew& few) {
  const auto& [lowered, simulation] = few;
  if (simulation.period_steps != 1) return std::nullopt;
  std::map<int, std::vector<TimelineEvent>> by_representative;
  for (const TimelineEvent& event : simulation.events) by_representative[event.rank].push_back(event);
  const Comparison comparison(compared);
  std::vector<double> paces_ns;                           // by class
  std::vector<std::vector<const Instruction*>> repeated;  // by class
  for (std::size_t c = 0; c < lowered.programs.size(); ++c) {
    const Program& program = lowered.programs[c];
    std::vector<TimelineEvent>& events = by_representative[program.rank];
    for (TimelineEvent& event : events) {
      const std::int64_t zero_ns = simulation.steps[static_cast<std::size_t>(event.step)][c].begin_ns;
      event.begin_ns += zero_ns;
      event.end_ns += zero_ns;
    }
    const ClassEvents of_class{.program = &program,
                               .micro_batches = micro_batches_of(program, plan.schedule.sub_batches),
                               .events = events,
                               .steady_step = simulation.steady_step};
    const std::optional<double> pace_ns = comparison.pace_ns(of_class);
    if (!pace_ns) return std::nullopt;
    paces_ns.push_back(*pace_ns);
    repeated.push_back(instructions_of(of_class, compared.run.first, compared.run.first + compared.run.apart));
  }
  // Ranks that neither exchange anything in a micro-batch nor share NICs wait for each other in the end alone.
  const std::vector<std::size_t> met = classes_that_meet(lowered, plan.mesh.ranks_per_node, repeated);
  for (std::size_t c = 0; c < paces_ns.size(); ++c) {
    if (std::abs(paces_ns[c] - paces_ns[met[c]]) > rounding_ns(paces_ns[c])) return std::nullopt;
  }
  return std::ranges::max(paces_ns) * 1e-9;
}

bool takes_longer_by(double pace_seconds, const SimulatedFew& few, const SimulatedFew& fewer) {
  const auto is_longer = [&](const SimulatedStep& more, const SimulatedStep& less) {
    return std::abs(more.step_seconds - less.step_seconds - pace_seconds) <= rounding_ns(pace_seconds * 1e9) * 1e-9;
  };
  return std::ranges::equal(few.steady_step(), fewer.steady_step(), is_longer);
}

std::optional<RepeatedStep> repeated_step(const PreparedPoint& point, const CostModel& costs) {
  const SimulateSection& simulate = point.experiment.simulate;
  if (simulate.noise > 0.0 || !simulate.straggler_ranks.empty()) return std::nullopt;
  try {
    std::optional<SimulatedFew> few;
    int num_simulated = 0;
    for (const ComparedMicroBatches& compared : compared_micro_batches(point.plan)) {
      if (std::exchange(num_simulated, compared.simulated) != compared.simulated) {
        few.reset();  // Two of them are never held at a time.
        few = simulated_few(point, costs, compared.simulated, true);
      }
      if (std::optional<RepeatedStep> all = told_from(point, costs, *few, compared)) return all;
    }
  } catch (const Unsupported&) {
  }
  return std::nullopt;
}

}  // namespace strata::predict
