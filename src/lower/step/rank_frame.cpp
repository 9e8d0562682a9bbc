#include "lower/step/rank_frame.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "lower/layouts/replica_grids.hpp"
#include "lower/step/stage_messages.hpp"
#include "lower/step/streams.hpp"

namespace strata {
namespace {

std::optional<RingLinks> ring_of(const Plan& plan, int rank) {
  if (axis_size(plan.mesh, "micro_batch") == 1) return std::nullopt;
  const int replica = coordinate(plan.mesh, "micro_batch", rank);
  if (parameters_walk(plan)) {
    return RingLinks(ring_of_owners(fresh_table(plan.schedule, plan.stages.count), replica), std::nullopt,
                     communication_stream + 1);
  }
  return RingLinks(replica_ring(plan.schedule, plan.stages.count, replica),
                   ring_pace(plan.schedule, plan.stages.count, replica), communication_stream + 1);
}

std::optional<WalkLinks> walk_of(const Plan& plan, int rank, const std::optional<RingLinks>& ring) {
  if (!parameters_walk(plan)) return std::nullopt;
  const FreshTable fresh = fresh_table(plan.schedule, plan.stages.count);
  return WalkLinks(parameter_walk(fresh, coordinate(plan.mesh, "micro_batch", rank)),
                   communication_stream + 1 + static_cast<int>(ring->streams.size()));
}

/// Their streams follow those between stages.
std::optional<ReplicaLinks> replicas_of(const Plan& plan, const RankPlace& place, int rank) {
  const auto pyramid = pyramid_of(plan.mesh);
  if (!pyramid) return std::nullopt;
  const auto num_links = static_cast<int>(link_streams(place.pipeline, place.in_pipeline).size());
  return ReplicaLinks(*pyramid, rank, communication_stream + 1 + num_links);
}

std::vector<std::string> streams_of(const Plan& plan, const LaidOutGraph& model, const RankPlace& place, int rank,
                                    const std::optional<RingLinks>& ring, const std::optional<WalkLinks>& walk,
                                    const std::optional<ReplicaLinks>& replicas) {
  std::vector<std::string> streams = {"compute", "communication"};
  if (model.is_laid_out()) {
    streams.push_back("layouts");
    std::ranges::copy(ring_streams(AtomicAxes(plan.mesh), model, rank), std::back_inserter(streams));
  }
  if (ring) std::ranges::copy(ring->streams, std::back_inserter(streams));
  if (walk) std::ranges::copy(walk->streams, std::back_inserter(streams));
  std::ranges::copy(link_streams(place.pipeline, place.in_pipeline), std::back_inserter(streams));
  if (replicas) std::ranges::copy(replicas->streams, std::back_inserter(streams));
  if (plan.overlap.replica_stream == "own") streams.push_back("replicas");
  return streams;
}

}  // namespace

RankFrame::RankFrame(const Plan& of_plan, const RankModel& of_model, int rank, const OrdersOfPlaces& of_orders)
    : plan(of_plan),
      model(of_model),
      graph(model.any().graph),
      place(plan, model.any(), rank),
      orders(of_orders),
      order(orders.of(place.index)),
      recomputation(recomputation_by_segment(order.shape, model.regions)),
      ring(ring_of(plan, rank)),
      walk(walk_of(plan, rank, ring)),
      replicas(replicas_of(plan, place, rank)),
      builder(rank, plan.mesh.num_ranks(), streams_of(plan, model.any(), place, rank, ring, walk, replicas)),
      groups(plan, model.any(), place, rank, builder),
      grids(grids_of(plan, model.any(), rank)),
      held(plan, graph, order, shards_of(plan, graph, model.any().decisions, grids), grids, groups.parameters.data,
           ring ? &ring->ring : nullptr, builder),
      statistics(plan, model.any(), place, builder),
      uses(graph, model.regions) {
  for (const Stage& part : place.parts) gradients.push_back(activation_gradients(graph, uses, part));
  if (ring) {
    const std::vector<int> all = group_along(plan.mesh, "micro_batch", rank);
    ring->sums_group = builder.add_group({"sums", all});
    for (auto& [arrival, group] : ring->groups) group = builder.add_group({std::string(word_of(arrival)), all});
    if (ring->pace) {
      ring->pace_group = builder.add_group({"pace", all});
      tokens.emplace(builder);
    }
    if (walk) {
      walk->owners_group = builder.add_group({"owned", all});
      walk->readers_group = builder.add_group({"walking", all});
      held.visiting.emplace(plan, graph, order, recomputation, walk->walk, builder);
    }
  }
  if (replicas && !replicas->is_alone()) {
    const std::vector<int> ranks = replicas->pyramid.replicas_of(replicas->stage);
    replicas->partial.group = builder.add_group({"sums", ranks});
    replicas->whole.group = builder.add_group({"totals", ranks});
  }
  if (!computes_loss()) return;
  loss = builder.add_buffer({.name = "loss", .num_elements = 1, .category = Category::workspace, .persistent = true});
  builder.set_loss(loss);
  if (std::ranges::find(graph.operators, OperatorKind::top_k, &Operator::kind) == graph.operators.end()) return;
  correct =
      builder.add_buffer({.name = "correct", .num_elements = 2, .category = Category::workspace, .persistent = true});
  builder.set_correct(correct);
}

}  // namespace strata
