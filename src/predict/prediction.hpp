#pragma once

/// @file
/// What a point would cost: the Programs that would run, simulated. Serves `strata simulate` and stands beside every
/// run.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cost/cost_model.hpp"
#include "cost/fit.hpp"
#include "lower/rank_classes.hpp"
#include "predict/prepared_point.hpp"
#include "results/rows.hpp"
#include "sim/simulate.hpp"

namespace strata::predict {

/// Identifies in profiles what computes: the processor and how many cores this process may use; on GPUs the first of
/// them and what [cuda] says of products. @throws Unsupported where there is no GPU.
std::string machine_identity(const Experiment& experiment);

/// The profile an experiment names. @throws UserError if it cannot be read, or was measured on another machine than
/// this one, or on another device of it, and the experiment's cluster is this machine.
CostProfile load_profile(const Experiment& experiment, const std::string& experiment_file);

/// Times of the profile an experiment names, for its ranks a node and its transports. @throws UserError as above, and
/// where the profile has no rows for them.
std::unique_ptr<CostModel> profiled_costs(const Experiment& experiment, const std::string& experiment_file);

/// α and β through the collectives of the profile an experiment names, of its transports; of an emulated link those
/// that it emulates. @throws UserError where the profile cannot be read.
LinkLines profiled_links(const Experiment& experiment, const std::string& experiment_file);

/// Option @p key asks for a profile, or for a cluster's description and there is one.
bool knows_costs(const PreparedPoint& point, std::string_view key);

/// The cost model that option @p key asks for: simulate.cost or planner.cost. @throws UserError where the point's
/// cluster or the profile lacks what it needs.
std::unique_ptr<CostModel> cost_model(const PreparedPoint& point, const std::string& experiment_file,
                                      std::string_view key = "simulate.cost");

/// Programs of one rank of every class, or of every rank where noise or stragglers tell ranks apart.
struct LoweredJob {
  std::vector<Program> programs;
  std::vector<int> class_of_rank;
  std::vector<int> leaf_of_node;  ///< empty: makes no difference
  Job job(int ranks_per_node) const;
};
/// @throws OutOfMemory as lowering for a run would.
LoweredJob lower_job(const PreparedPoint& point);
/// The same whatever the plan's capacity.
LoweredJob lower_job_uncapped(const PreparedPoint& point);

/// What the evaluation takes beside the training that is @p training, of the rank with the largest. 0: nothing is
/// evaluated. @throws OutOfMemory where both do not fit, as a run would.
std::int64_t evaluation_arena_bytes(const PreparedPoint& point, const LoweredJob& training);

/// [simulate] of the point, for simulate_steady().
SimulationOptions simulation_options(const PreparedPoint& point);

struct Prediction {
  SimulationResult simulation;
  std::string source;  ///< "simulator, " and CostModel::description()
  /// Of rank 0: seconds a step inside each kernel and each collective, by name.
  std::map<std::string, double> kernel_seconds, collective_seconds;
};
Prediction predict(const PreparedPoint& point, const LoweredJob& lowered, const CostModel& costs);

/// The simulated step as a row of results. Metrics without meaning in a simulation (loss, learning rate) stay unknown.
results::StepRow step_row(const PreparedPoint& point, const LoweredJob& lowered, const SimulationResult& simulation,
                          std::int64_t step);
/// The mean of the steps of a period, in the long run.
results::StepRow steady_row(const PreparedPoint& point, const LoweredJob& lowered, const SimulationResult& simulation);
/// Of the time of all kernels and collectives, what lies beyond what a profile measured.
double extrapolated_share(const SimulationResult& simulation);
/// Of the rank's arena; of a Program without addresses what lives at once at most, which is no more.
std::int64_t peak_bytes(const Program& program);
/// What of a row needs no simulation: samples, bytes sent, memory.
void set_account(results::StepRow& row, const PreparedPoint& point, const LoweredJob& lowered);

}  // namespace strata::predict
