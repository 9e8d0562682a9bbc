#include "lower/rank_model.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "lower/order/step_shape.hpp"
#include "lower/unsupported.hpp"
#include "partition/operator_splitting.hpp"
#include "partition/sample_parts.hpp"
#include "partition/stages.hpp"

namespace strata {
namespace {

/// Of samples that are cut over the data axis alone.
SampleParts sample_parts(const Plan& plan, std::int64_t num_samples, int rank) {
  const int size = axis_size(plan.mesh, "data");
  const int index = coordinate(plan.mesh, "data", rank);
  const auto has_samples = [&](int i) { return chunk_of(num_samples, size, i).size() > 0; };
  SampleParts parts{.index = 0, .count = 0, .is_kept = has_samples(index)};
  for (int i = 0; i < size; ++i) {
    if (i == index) parts.index = parts.count;
    parts.count += has_samples(i) ? 1 : 0;
  }
  return parts;
}

/// The model of a rank of a plan without layouts: every rank has all of it, and its samples of @p num_samples.
LaidOutGraph replicated(const Plan& plan, SplitModel split, std::int64_t num_samples, int rank) {
  const Chunk samples = samples_of_rank(plan, num_samples, rank);
  const bool has_all = samples.size() == num_samples;
  const StridedBlock neighbours{.first = samples.begin, .run = std::max<std::int64_t>(samples.size(), 1)};
  const std::size_t num_tensors = split.graph.tensors.size();
  std::vector<Stage> stages = cut_into_stages(split.graph, plan.stages);
  std::map<int, SampleParts> norm_parts;
  for (std::size_t o = 0; o < split.graph.operators.size(); ++o) {
    if (split.graph.operators[o].kind != OperatorKind::batch_norm) continue;
    norm_parts[static_cast<int>(o)] = sample_parts(plan, num_samples, rank);
  }
  return {.graph = std::move(split.graph),
          .decisions = std::move(split.decisions),
          .layouts = {},
          .num_samples = std::vector<std::int64_t>(num_tensors, samples.size()),
          .samples = std::vector<StridedBlock>(num_tensors, has_all ? StridedBlock{} : neighbours),
          .replicas = {},
          .stages = std::move(stages),
          .steps = {},
          .panels = {},
          .rings = {},
          .norm_parts = std::move(norm_parts)};
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
