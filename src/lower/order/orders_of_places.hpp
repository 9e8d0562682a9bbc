#pragma once

/// @file
/// The orders of a step, by place, made where they are asked for: a rank needs its own and those of its neighbours. A
/// place is a part of the pipeline of ranks and, where ranks take a micro-batch each, one of these; ranks at one place
/// have equal orders (place_of_rank in lower.hpp). In a pyramid every rank is a place.

#include <optional>
#include <utility>

#include "ir/plan/plan.hpp"
#include "ir/plan/stage_pyramid.hpp"
#include "lower/order/schedules.hpp"
#include "lower/order/step_shape.hpp"
#include "lower/rank_model.hpp"
#include "partition/stages_of_places.hpp"

namespace strata {

class OrdersOfPlaces {
 public:
  OrdersOfPlaces(const Plan& plan, StepShape shape, OrderGenerator generator)
      : shape_(std::move(shape)),
        generator_(std::move(generator)),
        pyramid_(pyramid_of(plan.mesh)),
        stages_(plan),
        num_replicas_(axis_size(plan.mesh, "micro_batch")) {}
  OrdersOfPlaces(const Plan& plan, const RankModel& model, const OrderGenerator& generator)
      : OrdersOfPlaces(plan, step_shape(plan, model.any().graph, model.regions, model.any().stages, model.collectives),
                       generator) {}
  int num_places() const { return pyramid_ ? pyramid_->num_ranks() : stages_.num_places() * num_replicas_; }
  StepOrder of(int place) const {
    if (pyramid_) {
      const int stage = pyramid_->stage_of(place);
      return generator_(shape_, {.first_stage = stage,
                                 .end_stage = stage + 1,
                                 .end_micro_batch = shape_.micro_batches,
                                 .replica = pyramid_->replica_of(place),
                                 .num_replicas = pyramid_->num_replicas(stage)});
    }
    const int micro_batches = shape_.micro_batches / num_replicas_;
    const int replica = place % num_replicas_;
    const StagesOfPlace stages = stages_.of(place / num_replicas_);
    return generator_(shape_, {.first_stage = stages.first,
                               .end_stage = stages.end,
                               .first_micro_batch = replica * micro_batches,
                               .end_micro_batch = (replica + 1) * micro_batches,
                               .stages_apart = stages.apart});
  }
  /// The place that is @p distance parts of the pipeline behind @p place, with its micro-batches; none: it ends before.
  std::optional<int> along_stages(int place, int distance) const {
    const int num = stages_.num_places();
    int there = place / num_replicas_ + distance;
    if (stages_.is_ring()) there = (there + num) % num;
    if (there < 0 || there >= num) return std::nullopt;
    return there * num_replicas_ + place % num_replicas_;
  }

 private:
  StepShape shape_;
  OrderGenerator generator_;
  std::optional<StagePyramid> pyramid_;
  StagePlaces stages_;
  int num_replicas_;
};

}  // namespace strata
