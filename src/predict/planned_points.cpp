#include "predict/planned_points.hpp"

#include <fmt/core.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/at_once.hpp"
#include "base/error.hpp"
#include "predict/machine_files.hpp"
#include "predict/plan_evaluation.hpp"
#include "predict/prediction.hpp"
#include "predict/prepared_point.hpp"

namespace strata::predict {
namespace {

using results::Status;

/// The experiment as far as its plan, memory and seconds depend on it.
std::string what_is_planned(Experiment e) {
  e.train.seed = TrainSection{}.seed;
  e.train.steps = TrainSection{}.steps;
  e.train.epochs = TrainSection{}.epochs;
  e.train.learning_rate = TrainSection{}.learning_rate;
  e.data = {};
  e.measure = {};
  e.job = {};
  e.checkpoint = {};
  return to_text(e);
}

/// What earlier launches measured of cluster "this", by shape of the allocation, each file read once.
class EarlierMachines {
 public:
  EarlierMachines(std::span<const Point> points, std::string results_folder) : folder_(std::move(results_folder)) {
    for (const Point& point : points) {
      if (point.experiment.cluster != "this") continue;
      const auto [at, is_new] = by_prefix_.try_emplace(machine_file_prefix(point.experiment, folder_));
      if (is_new) at->second = earlier_machine(at->first);
    }
  }

  /// Null: none, or the experiment names another cluster.
  const Cluster* of(const Experiment& experiment) const {
    if (experiment.cluster != "this") return nullptr;
    const std::optional<Cluster>& machine = by_prefix_.at(machine_file_prefix(experiment, folder_));
    return machine ? &*machine : nullptr;
  }

 private:
  std::string folder_;
  std::map<std::string, std::optional<Cluster>> by_prefix_;
};

/// @param machine what is known of cluster "this"; null: nothing.
PlannedPoint planned(const Experiment& experiment, const std::string& experiment_file, const Cluster* machine) {
  if (experiment.cluster == "this" && machine == nullptr && is_on_gpus(experiment)) {
    return {.reason = "the nodes' GPUs are asked there what they are"};
  }
  try {
    const PreparedPoint point = prepare_point(experiment, experiment_file, machine);
    const PlanEvaluation evaluate(point, experiment_file);
    const bool knows_seconds = evaluate.knows_seconds();
    const Evaluation found = knows_seconds ? evaluate(point.plan) : evaluate.memory(point.plan);
    if (!found.feasible()) {
      // What lowering refuses has no memory.
      return {.status = found.peak_bytes > 0 ? Status::oom : Status::refused, .reason = found.missing};
    }
    if (!knows_seconds) return {};
    return {.step_seconds = found.step_seconds, .global_batch = point.plan.global_batch};
  } catch (const CostsUnknown& unknown) {
    return {.reason = unknown.what()};
  } catch (const Unsupported& refusal) {
    return {.status = Status::refused, .reason = refusal.what()};
  } catch (const OutOfMemory& missing) {
    return {.status = Status::oom, .reason = missing.what()};
  }
}

}  // namespace

std::vector<PlannedPoint> plan_points(std::span<const Point> points, const std::string& experiment_file,
                                      const std::string& results_folder, int num_threads,
                                      const std::function<void(std::size_t)>& report) {
  const EarlierMachines machines(points, results_folder);
  // Of points that are planned alike the first.
  std::map<std::string, std::size_t> first_of;
  std::vector<std::size_t> like(points.size());
  std::vector<std::size_t> different;
  for (std::size_t p = 0; p < points.size(); ++p) {
    const auto [at, is_new] = first_of.try_emplace(what_is_planned(points[p].experiment), p);
    like[p] = at->second;
    if (is_new) different.push_back(p);
  }
  std::vector<PlannedPoint> found(points.size());
  std::mutex mutex;
  std::size_t num_done = 0;
  at_once(different.size(), static_cast<std::size_t>(num_threads), [&](std::size_t i) {
    const std::size_t p = different[i];
    try {
      found[p] = planned(points[p].experiment, experiment_file, machines.of(points[p].experiment));
    } catch (const UserError& error) {
      throw UserError(fmt::format("point {}: {}", points[p].index, error.what()));
    } catch (const InternalError& bug) {
      throw InternalError(fmt::format("point {}: {}", points[p].index, bug.what()));
    }
    const std::lock_guard lock(mutex);
    ++num_done;
    if (report) report(num_done * points.size() / different.size());
  });
  for (std::size_t p = 0; p < points.size(); ++p) found[p] = found[like[p]];
  return found;
}

}  // namespace strata::predict
