#include "lower/step/rank_frame.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "lower/step/stage_messages.hpp"

namespace strata {
namespace {

std::vector<std::string> streams_of(const Plan& plan, const RankPlace& place) {
  std::vector<std::string> streams = {"compute", "communication"};
  if (has_layouts(plan.mesh)) streams.push_back("layouts");
  std::ranges::copy(link_streams(place.num_stages, place.stage_index), std::back_inserter(streams));
  return streams;
}

}  // namespace

RankFrame::RankFrame(const Plan& of_plan, const RankModel& of_model, int rank, const OrdersOfStages& of_orders)
    : plan(of_plan),
      model(of_model),
      graph(model.any().graph),
      place(plan, model.any(), rank),
      orders(of_orders),
      order(orders.of(place.stage_index)),
      recomputation(recomputation_by_segment(order.shape, model.regions)),
      builder(rank, plan.mesh.num_ranks(), streams_of(plan, place)),
      groups(plan, model.any(), place, rank, builder),
      grids(grids_of(plan, model.any(), rank)),
      held(plan, graph, order, shards_of(plan, graph, model.any().decisions, grids), grids, groups.parameters.data,
           builder),
      uses(graph, model.regions) {
  if (!computes_loss()) return;
  loss = builder.add_buffer({.name = "loss", .num_elements = 1, .category = Category::workspace, .persistent = true});
  builder.set_loss(loss);
}

}  // namespace strata
