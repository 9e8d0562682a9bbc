#include "app/unstarted.hpp"

#include <fmt/core.h>

#include "app/point_facts.hpp"
#include "results/recorder.hpp"

namespace strata::app {

void record_unstarted(const Environment& environment, const Point& point, int num_ranks, const Outcome& outcome,
                      const RunOptions& options) {
  results::AttemptFacts facts = facts_of_experiment(environment, point.experiment, point.id);
  facts.num_ranks = num_ranks;
  results::RecorderSettings settings;
  settings.origin = options.origin;
  results::Recorder recorder(fmt::format("{}/{}/{}", options.results_folder, point.experiment.name, point.id), facts,
                             settings);
  recorder.finish(outcome.status, outcome.message);
}

}  // namespace strata::app
