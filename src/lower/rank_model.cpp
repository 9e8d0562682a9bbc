#include "lower/rank_model.hpp"

#include <algorithm>
#include <utility>

#include "lower/order/step_shape.hpp"
#include "lower/unsupported.hpp"
#include "partition/operator_splitting.hpp"
#include "partition/sample_parts.hpp"
#include "partition/stages.hpp"

namespace strata {
namespace {

/// The model of a rank of a plan without layouts: every rank has all of it, and its samples of @p num_samples.
LaidOutGraph replicated(const Plan& plan, SplitModel split, std::int64_t num_samples, int rank) {
  const Chunk samples = samples_of_rank(plan, num_samples, rank);
  const bool has_all = samples.size() == num_samples;
  const StridedBlock neighbours{.first = samples.begin, .run = std::max<std::int64_t>(samples.size(), 1)};
  const std::size_t num_tensors = split.graph.tensors.size();
  std::vector<Stage> stages = cut_into_stages(split.graph, plan.stages);
  return {.graph = std::move(split.graph),
          .decisions = std::move(split.decisions),
          .layouts = {},
          .num_samples = std::vector<std::int64_t>(num_tensors, samples.size()),
          .samples = std::vector<StridedBlock>(num_tensors, has_all ? StridedBlock{} : neighbours),
          .replicas = {},
          .stages = std::move(stages),
          .steps = {}};
}

/// @param model_of a number of samples.
template <typename ModelOf>
RankModel by_sub_batch(const Plan& plan, std::span<const OperatorDecision> decisions, const ModelOf& model_of) {
  RankModel model;
  std::vector<std::int64_t> sizes;
  for (int u = 0; u < plan.schedule.sub_batches; ++u) {
    const Chunk samples = samples_of_sub_batch(plan, decisions, u);
    auto size = std::ranges::find(sizes, samples.size());
    if (size == sizes.end()) {
      model.sizes.push_back(model_of(samples.size()));
      size = sizes.insert(size, samples.size());
    }
    model.sub_batches.push_back(
        {.size = static_cast<std::size_t>(size - sizes.begin()), .first_sample = samples.begin});
  }
  model.collectives = layout_collectives(model.any());
  model.regions = recomputed_regions(model.any().graph, model.any().decisions, model.collectives, model.any().stages);
  return model;
}

}  // namespace

RankModel rank_model(const Plan& plan, const ModelGraph& graph, int rank) {
  verify(plan, graph);
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  if (has_layouts(plan.mesh)) {
    refuse_what_is_missing(plan, graph, decisions);
    return by_sub_batch(plan, decisions,
                        [&](std::int64_t samples) { return lay_out(plan, graph, decisions, samples, rank); });
  }
  SplitModel split = split_operators(plan, graph, decisions);
  refuse_what_is_missing(plan, split.graph, split.decisions);
  refuse_what_is_not_quantized(plan, split.graph, split.decisions);
  const bool is_asked_once = plan.schedule.sub_batches == 1;
  return by_sub_batch(plan, decisions, [&](std::int64_t samples) {
    return replicated(plan, is_asked_once ? std::move(split) : split, samples, rank);
  });
}

}  // namespace strata
