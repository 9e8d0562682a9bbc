#pragma once

/// @file
/// Discrete-event simulation of one job: streams run in order, a collective starts when all members have reached it,
/// transfers in one direction share the NICs of a node, compute and communication of a rank slow each other down where
/// the cost model says so. Steps follow each other; where they overlap, all of them are one list
/// (ir/program/repetition.hpp), from the first step's beginning to the last one's end. The decision: time is continuous
/// and work is fluid — a change of speed changes when running work will end — so that folded and unfolded jobs, whose
/// events differ only in number, give the same numbers to the last bit.

#include <cstdint>
#include <map>
#include <vector>

#include "cost/cost_model.hpp"
#include "ir/timeline/timeline.hpp"
#include "sim/job.hpp"

namespace strata {

struct SimulationOptions {
  int num_steps = 1;
  /// The host computes, so a collective is posted only when the instruction list reaches it: the CPU executor. Off: all
  /// streams run ahead as far as their waits allow.
  bool issue_in_list_order = false;
  /// Standard deviation of the logarithm of each kernel's time, by rank and step; mean time is kept.
  double noise = 0.0;
  std::uint64_t seed = 1;
  std::map<int, double> stragglers;  ///< rank → factor on the time of its kernels, >= 1
  bool keeps_events = true;          ///< in the result; a step's times are there either way
};

/// Of one class in one step.
struct SimulatedStep {
  std::int64_t begin_ns = 0;           ///< when the clock of its events starts, since the first step's beginning
  double step_seconds = 0.0;           ///< from the end of the step before to the end of this one, and its overhead
  double compute_seconds = 0.0;        ///< inside kernels
  double communication_seconds = 0.0;  ///< some collective reached and not ended
  double exposed_seconds = 0.0;        ///< neither kernels, of any step, nor the step's overhead
};

struct SimulationResult {
  std::vector<std::vector<SimulatedStep>> steps;  ///< [step][class]
  int steady_step = 0;                            ///< the last one that no later one is missing beside
  int period_steps = 1;                           ///< see sim/steady_state.hpp; steps that do not overlap: 1
  std::vector<TimelineEvent> events;              ///< of the representatives, by class, step and instruction
  std::int64_t num_events = 0;                    ///< tasks that ended, over all steps
  std::vector<double> seconds_by_basis;           ///< of all kernels and collectives; index: Basis
};

/// @throws InternalError naming ranks, instructions and groups where the Programs lock up; UserError for noise or
/// stragglers in a job whose classes hold several ranks.
SimulationResult simulate(const Job& job, const CostModel& costs, const SimulationOptions& options = {});

}  // namespace strata
