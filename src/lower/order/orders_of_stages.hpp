#pragma once

/// @file
/// The orders of a step, by stage, made where they are asked for: a rank needs its own and those of its neighbours.

#include "ir/plan/plan.hpp"
#include "lower/order/schedules.hpp"
#include "lower/order/step_shape.hpp"
#include "lower/rank_model.hpp"

namespace strata {

class OrdersOfStages {
 public:
  OrdersOfStages(const Plan& plan, const RankModel& model, const OrderGenerator& generator)
      : shape_(step_shape(plan, model.any().graph, model.regions, model.any().stages, model.collectives)),
        generator_(generator) {}
  int num_stages() const { return shape_.num_stages(); }
  StepOrder of(int stage) const { return generator_(shape_, stage); }

 private:
  StepShape shape_;
  OrderGenerator generator_;
};

}  // namespace strata
