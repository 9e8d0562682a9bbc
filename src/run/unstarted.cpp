#include "run/unstarted.hpp"

#include <fmt/core.h>

#include "predict/point_facts.hpp"
#include "results/recorder.hpp"

namespace strata::run {

void record_unstarted(const Environment& environment, const Point& point, int num_ranks,
                      const results::Outcome& outcome, const RunOptions& options) {
  results::AttemptFacts facts = predict::facts_of_experiment(environment, point.experiment, point.id);
  facts.num_ranks = num_ranks;
  results::RecorderSettings settings;
  settings.origin = options.origin;
  results::Recorder recorder(fmt::format("{}/{}/{}", options.results_folder, point.experiment.name, point.id), facts,
                             settings);
  recorder.finish(outcome.status, outcome.message);
}

}  // namespace strata::run
