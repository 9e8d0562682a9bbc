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

/// Of events in whole nanoseconds, two of which are subtracted from two others.
constexpr double rounding_ns = 2.0;

/// Same work, whatever it is called.
bool are_alike(const Instruction& a, const Instruction& b) {
  return a.kernel == b.kernel && a.phase == b.phase && a.stream == b.stream && a.is_collective() == b.is_collective() &&
         (!a.is_collective() || (a.collective == b.collective && a.group == b.group));
}

/// Of each instruction of the body: the micro-batch that it belongs to. Reductions of gradients are not counted by
/// micro-batches: they belong to the one behind whose passes they stand.
std::vector<int> micro_batches_of(const Program& program, int sub_batches) {
  std::vector<int> all;
  int last = 0;
  for (const Instruction& in : program.body) {
    if (in.phase != Phase::reduce) last = in.micro_batch / sub_batches;
    all.push_back(last);
  }
  return all;
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

  /// By how much each micro-batch is later than the one before; nothing: they do not repeat.
  std::optional<double> pace_ns(const ClassEvents& of_class) const {
    const ByMicroBatch instructions = compared_instructions(of_class);
    if (instructions.size() < 2) return std::nullopt;
    std::vector<const TimelineEvent*> of_instruction(of_class.program->body.size());
    for (const TimelineEvent& event : of_class.events) {
      if (event.step == of_class.steady_step) of_instruction[static_cast<std::size_t>(event.instruction)] = &event;
    }
    ByMicroBatchOf<const TimelineEvent*> events;
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
    const auto later_ns = static_cast<double>(events.back().front()->begin_ns - events.front().front()->begin_ns);
    const double pace_ns = later_ns / static_cast<double>(events.size() - 1);
    for (std::size_t m = 1; m < events.size(); ++m) {
      const auto is_later = [&](const TimelineEvent* later, const TimelineEvent* earlier) {
        return is_later_by(pace_ns, *later, *earlier);
      };
      if (!std::ranges::equal(events[m], events[m - 1], is_later)) return std::nullopt;
    }
    const bool is_alone = is_repeated_alone(*of_class.program) || are_alone(of_class, begin_ns, end_ns);
    return is_alone ? std::optional(pace_ns) : std::nullopt;
  }

 private:
  template <typename Of>
  using ByMicroBatchOf = std::vector<std::vector<Of>>;
  /// Instructions of the compared micro-batches, in order; empty where they are not alike.
  using ByMicroBatch = ByMicroBatchOf<std::size_t>;

  ByMicroBatch compared_instructions(const ClassEvents& of_class) const {
    const Program& program = *of_class.program;
    ByMicroBatch compared(static_cast<std::size_t>(compared_.last - compared_.first + 1));
    for (std::size_t i = 0; i < program.body.size(); ++i) {
      const int m = of_class.micro_batches[i];
      if (m < compared_.first || m > compared_.last) continue;
      compared[static_cast<std::size_t>(m - compared_.first)].push_back(i);
    }
    const bool repeats = std::ranges::all_of(compared, [&](const std::vector<std::size_t>& of_one) {
      return std::ranges::equal(of_one, compared.front(), [&](std::size_t a, std::size_t b) {
        return are_alike(program.body[a], program.body[b]);
      });
    });
    return repeats && !compared.front().empty() ? compared : ByMicroBatch{};
  }

  static bool is_later_by(double pace_ns, const TimelineEvent& later, const TimelineEvent& earlier) {
    const auto begins = static_cast<double>(later.begin_ns - earlier.begin_ns);
    const auto ends = static_cast<double>(later.end_ns - earlier.end_ns);
    return std::abs(begins - pace_ns) <= rounding_ns && std::abs(ends - pace_ns) <= rounding_ns;
  }

  /// Only micro-batches of the same step are under way from @p begin_ns to @p end_ns, those compared and their
  /// neighbours.
  bool are_alone(const ClassEvents& of_class, std::int64_t begin_ns, std::int64_t end_ns) const {
    return std::ranges::none_of(of_class.events, [&](const TimelineEvent& event) {
      if (event.begin_ns >= end_ns || event.end_ns <= begin_ns) return false;
      const int m = of_class.micro_batches[static_cast<std::size_t>(event.instruction)];
      return event.step != of_class.steady_step || m < compared_.first - 1 || m > compared_.last + 1;
    });
  }

  ComparedMicroBatches compared_;
};

/// Those of micro-batch @p m.
std::vector<const Instruction*> instructions_of(const ClassEvents& of_class, int m) {
  std::vector<const Instruction*> of_one;
  for (std::size_t i = 0; i < of_class.micro_batches.size(); ++i) {
    if (of_class.micro_batches[i] == m) of_one.push_back(&of_class.program->body[i]);
  }
  return of_one;
}

/// Of a step of few micro-batches.
struct SimulatedFew {
  LoweredJob lowered;
  SimulationResult simulation;
  const std::vector<SimulatedStep>& steady_step() const {
    return simulation.steps[static_cast<std::size_t>(simulation.steady_step)];
  }
};

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

/// Adding a micro-batch takes each class equally long, and no memory.
bool adds_the_same_everywhere(const SimulatedFew& few, const SimulatedFew& one_fewer, double period_seconds) {
  const auto takes_a_period = [&](const SimulatedStep& more, const SimulatedStep& less) {
    return std::abs(more.step_seconds - less.step_seconds - period_seconds) <= rounding_ns * 1e-9;
  };
  return std::ranges::equal(few.steady_step(), one_fewer.steady_step(), takes_a_period) &&
         std::ranges::equal(few.lowered.programs, one_fewer.lowered.programs, {}, peak_bytes, peak_bytes);
}

/// Value of a step of @p left_out micro-batches more than @p few has, each of which adds what the last of those does.
template <typename Number>
Number of_all(Number few, Number one_fewer, int left_out) {
  return few + static_cast<Number>(left_out) * (few - one_fewer);
}

SimulationResult simulation_of_all(const SimulatedFew& few, const SimulatedFew& one_fewer, int left_out) {
  SimulationResult all;
  std::vector<SimulatedStep>& step = all.steps.emplace_back(few.steady_step());
  for (std::size_t c = 0; c < step.size(); ++c) {
    for (const auto member : {&SimulatedStep::step_seconds, &SimulatedStep::compute_seconds,
                              &SimulatedStep::communication_seconds, &SimulatedStep::exposed_seconds}) {
      step[c].*member = of_all(few.steady_step()[c].*member, one_fewer.steady_step()[c].*member, left_out);
    }
  }
  const std::vector<double>& by_basis = few.simulation.seconds_by_basis;
  for (std::size_t basis = 0; basis < by_basis.size(); ++basis) {
    all.seconds_by_basis.push_back(of_all(by_basis[basis], one_fewer.simulation.seconds_by_basis[basis], left_out));
  }
  return all;
}

/// Nothing where those compared do not repeat. @throws Unsupported as lowering does.
std::optional<RepeatedStep> told_from(const PreparedPoint& point, const CostModel& costs,
                                      const ComparedMicroBatches& compared) {
  const SimulatedFew one_fewer = simulated_few(point, costs, compared.simulated - 1, false);
  SimulatedFew few = simulated_few(point, costs, compared.simulated, true);
  const double period_seconds = steady_step_seconds(few.simulation) - steady_step_seconds(one_fewer.simulation);
  if (!adds_the_same_everywhere(few, one_fewer, period_seconds) ||
      !micro_batches_repeat(point.plan, compared, few.lowered, few.simulation, period_seconds)) {
    return std::nullopt;
  }
  const int left_out = point.plan.schedule.micro_batches - compared.simulated;
  RepeatedStep all{.lowered = {}, .simulation = simulation_of_all(few, one_fewer, left_out), .row = {}};
  all.lowered = std::move(few.lowered);
  all.row = step_row(point, all.lowered, all.simulation, 0);
  results::StepRow account;
  set_account(account, point, one_fewer.lowered);
  for (std::size_t kind = 0; kind < all.row.sent_bytes.size(); ++kind) {
    all.row.sent_bytes[kind] = of_all(all.row.sent_bytes[kind], account.sent_bytes[kind], left_out);
  }
  return all;
}

}  // namespace

std::vector<ComparedMicroBatches> compared_micro_batches(const Plan& plan) {
  constexpr std::size_t most = 3;
  ComparedMicroBatches compared;
  switch (plan.schedule.kind) {
    case ScheduleKind::simultaneous: compared = {.simulated = 6, .first = 2, .last = 4}; break;
    case ScheduleKind::one_forward_one_backward: {
      const int places = axis_size(plan.mesh, "stage");
      compared = {.simulated = 4 * places + 4, .first = 2 * places, .last = 3 * places + 2};
      break;
    }
    default: return {};
  }
  std::vector<ComparedMicroBatches> all;
  while (plan.schedule.micro_batches > 2 * compared.simulated && all.size() < most) {
    all.push_back(compared);
    const int more = compared.simulated;
    compared = {.simulated = compared.simulated + more, .first = compared.first + more, .last = compared.last + more};
  }
  return all;
}

bool micro_batches_repeat(const Plan& plan, const ComparedMicroBatches& compared, const LoweredJob& lowered,
                          const SimulationResult& simulation, double period_seconds) {
  if (simulation.period_steps != 1) return false;
  std::map<int, std::vector<TimelineEvent>> by_representative;
  for (const TimelineEvent& event : simulation.events) by_representative[event.rank].push_back(event);
  const Comparison comparison(compared);
  std::vector<double> paces_ns;                         // by class
  std::vector<std::vector<const Instruction*>> of_one;  // by class
  for (std::size_t c = 0; c < lowered.programs.size(); ++c) {
    std::vector<TimelineEvent>& events = by_representative[lowered.programs[c].rank];
    for (TimelineEvent& event : events) {
      const std::int64_t zero_ns = simulation.steps[static_cast<std::size_t>(event.step)][c].begin_ns;
      event.begin_ns += zero_ns;
      event.end_ns += zero_ns;
    }
    const Program& program = lowered.programs[c];
    const ClassEvents of_class{.program = &program,
                               .micro_batches = micro_batches_of(program, plan.schedule.sub_batches),
                               .events = events,
                               .steady_step = simulation.steady_step};
    const std::optional<double> pace_ns = comparison.pace_ns(of_class);
    if (!pace_ns) return false;
    paces_ns.push_back(*pace_ns);
    of_one.push_back(instructions_of(of_class, compared.first));
  }
  // Ranks that neither exchange anything in a micro-batch nor share NICs wait for each other in the end alone.
  const std::vector<std::size_t> met = classes_that_meet(lowered, plan.mesh.ranks_per_node, of_one);
  for (std::size_t c = 0; c < paces_ns.size(); ++c) {
    if (std::abs(paces_ns[c] - paces_ns[met[c]]) > rounding_ns) return false;
  }
  // Behind the last micro-batch all wait for the slowest.
  return std::abs(std::ranges::max(paces_ns) - period_seconds * 1e9) <= rounding_ns;
}

std::optional<RepeatedStep> repeated_step(const PreparedPoint& point, const CostModel& costs) {
  const SimulateSection& simulate = point.experiment.simulate;
  if (simulate.noise > 0.0 || !simulate.straggler_ranks.empty()) return std::nullopt;
  try {
    for (const ComparedMicroBatches& compared : compared_micro_batches(point.plan)) {
      if (std::optional<RepeatedStep> all = told_from(point, costs, compared)) return all;
    }
  } catch (const Unsupported&) {
  }
  return std::nullopt;
}

}  // namespace strata::predict
