#include "lower/lower.hpp"

#include "lower/order/orders_of_places.hpp"
#include "lower/rank_model.hpp"
#include "lower/step/step_lowering.hpp"

namespace strata {

Program lower(const Plan& plan, const ModelGraph& graph, int rank, const KernelTraits& kernels) {
  return lower(plan, graph, rank, kernels, order_generator_of(plan));
}

Program lower(const Plan& plan, const ModelGraph& graph, int rank, const KernelTraits& kernels,
              const OrderGenerator& generator) {
  const RankModel model = rank_model(plan, graph, rank);
  return lower_step(plan, model, rank, OrdersOfPlaces(plan, model, generator), kernels);
}

std::vector<StepOrder> step_orders(const Plan& plan, const ModelGraph& graph) {
  const OrderGenerator generator = order_generator_of(plan);
  const OrdersOfPlaces orders(plan, rank_model(plan, graph, 0), generator);
  std::vector<StepOrder> result;
  for (int place = 0; place < orders.num_places(); ++place) result.push_back(orders.of(place));
  return result;
}

int place_of_rank(const Mesh& mesh, int rank) {
  if (mesh.placement == "pyramid") return rank;
  return coordinate(mesh, "stage", rank) * axis_size(mesh, "micro_batch") + coordinate(mesh, "micro_batch", rank);
}

}  // namespace strata
