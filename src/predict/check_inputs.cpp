#include "predict/check_inputs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "predict/prepared_point.hpp"
#include "predict/training_inputs.hpp"

namespace strata::predict {
namespace {

/// The keys that the checks depend on.
struct Inputs {
  ModelSection model;
  DataSection data;
  BatchSize global_batch;
  std::int64_t global_batch_tokens;
  bool operator==(const Inputs&) const = default;
};

void check(const Experiment& experiment, const std::string& experiment_file) {
  const ModelGraph graph = model_of(experiment);
  // A batch that a planner will choose is not known yet; inputs of one sample exist where those of more do.
  const std::int64_t samples = experiment.train.global_batch.is_planners ? 1 : global_batch_samples(experiment, graph);
  make_training_inputs(experiment, graph, samples, experiment_file);
}

}  // namespace

void check_inputs(std::span<const Point> points, const std::string& experiment_file) {
  std::vector<Inputs> seen;  // few: sweeps vary strategies, ranks and seeds more than models
  for (const Point& point : points) {
    const Experiment& e = point.experiment;
    Inputs inputs{e.model, e.data, e.train.global_batch, e.train.global_batch_tokens};
    if (std::find(seen.rbegin(), seen.rend(), inputs) != seen.rend()) continue;
    try {
      check(e, experiment_file);
    } catch (const UserError& error) {
      throw UserError(fmt::format("point {}: {}", point.index, error.what()));
    }
    seen.push_back(std::move(inputs));
  }
}

}  // namespace strata::predict
