#include "predict/point_facts.hpp"

#include <fmt/core.h>

#include "predict/provenance.hpp"

namespace strata::predict {

results::AttemptFacts facts_of_experiment(const Environment& environment, const Experiment& experiment,
                                          const std::string& point_id) {
  results::AttemptFacts facts = provenance_of(environment);
  facts.experiment_name = experiment.name;
  facts.experiment_title = experiment.title;
  facts.experiment_toml = to_text(experiment);
  facts.point_id = point_id;
  for (const CanonicalKey& key : canonical_keys(experiment)) {
    facts.point_keys += fmt::format("{} = {}\n", key.key, key.value);
  }
  facts.model_name = experiment.model.name;
  facts.strategy_name = experiment.strategy.name;
  facts.dtype = experiment.train.dtype;
  facts.backend = experiment.backend;
  facts.threads_per_rank = experiment.resources.threads_per_rank;
  return facts;
}

results::AttemptFacts facts_of_point(const Environment& environment, const PreparedPoint& point,
                                     const std::string& point_id) {
  const ModelGraph& graph = point.graph;
  const CountedFlops counted = counted_flops(point.experiment, graph);
  results::AttemptFacts facts = facts_of_experiment(environment, point.experiment, point_id);
  facts.plan_text = to_text(point.plan);
  facts.cluster_text = to_text(point.cluster);
  facts.model_name = graph.name;
  facts.strategy_name = point.plan.strategy;
  facts.flop_convention = counted.convention;
  facts.flops_per_sample = counted.per_sample;
  facts.sample_unit = graph.positions_per_sample > 1 ? "token" : "image";
  facts.num_sequences_per_step = point.plan.global_batch;
  facts.num_samples_per_step = point.plan.global_batch * graph.positions_per_sample;
  facts.num_parameters = graph.num_parameters();
  facts.memory_cap_bytes = point.plan.device_capacity_bytes;
  return facts;
}

}  // namespace strata::predict
