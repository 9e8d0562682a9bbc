#include "predict/repeated_micro_batches.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "ir/program/repetition.hpp"
#include "lower/fewer_micro_batches.hpp"
#include "sim/steady_state.hpp"

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

/// Of a step of @p micro_batches.
struct SimulatedFew {
  LoweredJob lowered;
  SimulationResult simulation;
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

bool have_same_arenas(const LoweredJob& a, const LoweredJob& b) {
  return std::ranges::equal(a.programs, b.programs, {}, &Program::arena_bytes, &Program::arena_bytes);
}

/// Value of a step of @p left_out micro-batches more than @p few has, each of which adds what the last of those does.
template <typename Number>
Number of_all(Number few, Number one_fewer, int left_out) {
  return few + static_cast<Number>(left_out) * (few - one_fewer);
}

/// Without events.
SimulationResult simulation_of_all(const SimulationResult& few, const SimulationResult& one_fewer, int left_out) {
  SimulationResult all = few;
  all.events.clear();
  all.num_events = of_all(few.num_events, one_fewer.num_events, left_out);
  for (std::size_t c = 0; c < all.steps.front().size(); ++c) {
    for (const auto member : {&SimulatedStep::step_seconds, &SimulatedStep::compute_seconds,
                              &SimulatedStep::communication_seconds, &SimulatedStep::exposed_seconds}) {
      all.steps[0][c].*member = of_all(few.steps[0][c].*member, one_fewer.steps[0][c].*member, left_out);
    }
  }
  for (std::size_t basis = 0; basis < all.seconds_by_basis.size(); ++basis) {
    all.seconds_by_basis[basis] = of_all(few.seconds_by_basis[basis], one_fewer.seconds_by_basis[basis], left_out);
  }
  return all;
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

std::optional<RepeatedStep> repeated_step(const PreparedPoint& point, const CostModel& costs) {
  const SimulateSection& simulate = point.experiment.simulate;
  if (simulate.noise > 0.0 || !simulate.straggler_ranks.empty()) return std::nullopt;
  if (!has_many_alike_micro_batches(point.plan)) return std::nullopt;
  SimulatedFew few, one_fewer;
  try {
    one_fewer = simulated_few(point, costs, compared_micro_batches - 1, false);
    few = simulated_few(point, costs, compared_micro_batches, true);
  } catch (const Unsupported&) {
    return std::nullopt;
  }
  const double period_seconds = steady_step_seconds(few.simulation) - steady_step_seconds(one_fewer.simulation);
  if (!have_same_arenas(few.lowered, one_fewer.lowered) ||
      !micro_batches_repeat(point.plan, few.lowered, few.simulation, period_seconds)) {
    return std::nullopt;
  }
  const int left_out = point.plan.schedule.micro_batches - compared_micro_batches;
  RepeatedStep all{.lowered = std::move(few.lowered),
                   .simulation = simulation_of_all(few.simulation, one_fewer.simulation, left_out),
                   .row = {}};
  all.row = step_row(point, all.lowered, all.simulation, 0);
  results::StepRow account;
  set_account(account, point, one_fewer.lowered);
  for (std::size_t kind = 0; kind < all.row.sent_bytes.size(); ++kind) {
    all.row.sent_bytes[kind] = of_all(all.row.sent_bytes[kind], account.sent_bytes[kind], left_out);
  }
  return all;
}

}  // namespace strata::predict
