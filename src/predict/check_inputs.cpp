#include "predict/check_inputs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "predict/evaluation_inputs.hpp"
#include "predict/prepared_point.hpp"
#include "predict/training_inputs.hpp"

namespace strata::predict {
namespace {

/// Calls @p check with one point of each set of equal keys, which @p keys_of takes from an experiment.
/// @throws UserError with the point's number before what @p check says.
template <typename KeysOf, typename Check>
void check_each(std::span<const Point> points, const KeysOf& keys_of, const Check& check) {
  std::vector<decltype(keys_of(points.front().experiment))> seen;  // few: sweeps vary strategies, ranks and seeds more
  for (const Point& point : points) {
    auto keys = keys_of(point.experiment);
    if (std::find(seen.rbegin(), seen.rend(), keys) != seen.rend()) continue;
    try {
      check(point.experiment);
    } catch (const UserError& error) {
      throw UserError(fmt::format("point {}: {}", point.index, error.what()));
    }
    seen.push_back(std::move(keys));
  }
}

}  // namespace

void check_names(std::span<const Point> points, const std::string& experiment_file) {
  check_each(
      points, [](const Experiment& e) { return e.model; }, model_of);
  check_each(
      points, [](const Experiment& e) { return e.cluster; },
      [&](const Experiment& e) {
        if (e.cluster != "this") cluster_of(e, experiment_file);
      });
}

void check_inputs(std::span<const Point> points, const std::string& experiment_file) {
  check_names(points, experiment_file);
  check_each(
      points,
      [](const Experiment& e) {
        return std::tuple(e.model, e.data, e.evaluate, e.train.global_batch, e.train.global_batch_tokens);
      },
      [&](const Experiment& e) {
        const ModelGraph graph = model_of(e);
        // A batch that a planner will choose is not known yet; inputs of one sample exist where those of more do.
        const std::int64_t samples = e.train.global_batch.is_planners ? 1 : global_batch_samples(e, graph);
        make_training_inputs(e, graph, samples, experiment_file);
        if (e.evaluate.every == 0) return;
        make_evaluation_inputs(e, graph, std::max<std::int64_t>(e.evaluate.batch, 1), experiment_file);
      });
}

}  // namespace strata::predict
