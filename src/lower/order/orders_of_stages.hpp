#pragma once

/// @file
/// The orders of a step, by place in the pipeline of ranks, made where they are asked for: a rank needs its own and
/// those of its neighbours.

#include <utility>

#include "ir/plan/plan.hpp"
#include "lower/order/schedules.hpp"
#include "lower/order/step_shape.hpp"
#include "lower/rank_model.hpp"

namespace strata {

class OrdersOfStages {
 public:
  OrdersOfStages(const Plan& plan, StepShape shape, OrderGenerator generator)
      : shape_(std::move(shape)), generator_(std::move(generator)), num_places_(axis_size(plan.mesh, "stage")) {}
  OrdersOfStages(const Plan& plan, const RankModel& model, const OrderGenerator& generator)
      : OrdersOfStages(plan, step_shape(plan, model.any().graph, model.regions, model.any().stages, model.collectives),
                       generator) {}
  int num_places() const { return num_places_; }
  StepOrder of(int place) const {
    const int stages = shape_.num_stages() / num_places_;
    return generator_(shape_, {.first_stage = place * stages,
                               .end_stage = (place + 1) * stages,
                               .first_micro_batch = 0,
                               .end_micro_batch = shape_.micro_batches});
  }

 private:
  StepShape shape_;
  OrderGenerator generator_;
  int num_places_;
};

}  // namespace strata
