#include "lower/step/rank_frame.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "lower/step/stage_messages.hpp"
#include "lower/step/streams.hpp"

namespace strata {
namespace {

std::optional<RingLinks> ring_of(const Plan& plan, int rank) {
  if (axis_size(plan.mesh, "micro_batch") == 1) return std::nullopt;
  const int replica = coordinate(plan.mesh, "micro_batch", rank);
  return RingLinks(replica_ring(plan.schedule, plan.stages.count, replica),
                   ring_pace(plan.schedule, plan.stages.count, replica), communication_stream + 1);
}

std::vector<std::string> streams_of(const Plan& plan, const RankPlace& place, const std::optional<RingLinks>& ring) {
  std::vector<std::string> streams = {"compute", "communication"};
  if (has_layouts(plan.mesh)) streams.push_back("layouts");
  if (ring) std::ranges::copy(ring->streams, std::back_inserter(streams));
  std::ranges::copy(link_streams(place.num_stages, place.stage_index), std::back_inserter(streams));
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
      builder(rank, plan.mesh.num_ranks(), streams_of(plan, place, ring)),
      groups(plan, model.any(), place, rank, builder),
      grids(grids_of(plan, model.any(), rank)),
      held(plan, graph, order, shards_of(plan, graph, model.any().decisions, grids), grids, groups.parameters.data,
           ring ? &ring->ring : nullptr, builder),
      uses(graph, model.regions) {
  if (ring) {
    const std::vector<int> replicas = group_along(plan.mesh, "micro_batch", rank);
    ring->sums_group = builder.add_group({"sums", replicas});
    for (auto& [arrival, group] : ring->groups) group = builder.add_group({std::string(word_of(arrival)), replicas});
    if (ring->pace) {
      ring->pace_group = builder.add_group({"pace", replicas});
      tokens.emplace(builder);
    }
  }
  if (!computes_loss()) return;
  loss = builder.add_buffer({.name = "loss", .num_elements = 1, .category = Category::workspace, .persistent = true});
  builder.set_loss(loss);
}

}  // namespace strata
