#pragma once

/// @file
/// Of one rank what all training steps of its body have in common: its place, groups, order, what it holds, and the
/// Program that is made.

#include <optional>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/order/orders_of_places.hpp"
#include "lower/order/step_shape.hpp"
#include "lower/rank_model.hpp"
#include "lower/states/held_parameters.hpp"
#include "lower/states/norm_statistics.hpp"
#include "lower/states/pace_tokens.hpp"
#include "lower/states/replica_links.hpp"
#include "lower/states/ring_links.hpp"
#include "lower/states/walk_links.hpp"
#include "lower/step/activation_gradients.hpp"
#include "lower/step/builder.hpp"
#include "lower/step/rank_groups.hpp"
#include "lower/step/rank_place.hpp"
#include "lower/step/tensor_uses.hpp"
#include "partition/shards.hpp"

namespace strata {

struct RankFrame {
  /// Of rank @p rank. All arguments outlive this.
  RankFrame(const Plan& of_plan, const RankModel& of_model, int rank, const OrdersOfPlaces& of_orders);
  RankFrame(const RankFrame&) = delete;
  RankFrame& operator=(const RankFrame&) = delete;

  /// Its part of it: the step's loss is the sum over all ranks, made where steps are recorded.
  bool computes_loss() const { return place.in_pipeline + 1 == place.num_places(); }

  const Plan& plan;
  const RankModel& model;
  const ModelGraph& graph;
  RankPlace place;
  const OrdersOfPlaces& orders;
  StepOrder order;                                  ///< of the body
  std::vector<SegmentRecomputation> recomputation;  ///< by segment
  std::optional<RingLinks> ring;                    ///< where ranks take a micro-batch each
  std::optional<WalkLinks> walk;                    ///< where they have parameters for a visit
  std::optional<ReplicaLinks> replicas;             ///< of the rank's stage, in a pyramid
  ProgramBuilder builder;
  RankGroups groups;
  ReplicaGrids grids;
  HeldParameters held;
  NormStatistics statistics;
  TensorUses uses;
  std::vector<ActivationGradients> gradients;  ///< by part of the rank
  std::optional<TokenBuffers> tokens;          ///< where these keep their distance
  int loss = -1;                               ///< buffer, -1: another stage computes it
  int correct = -1;                            ///< buffer, -1: nothing is evaluated
};

}  // namespace strata
