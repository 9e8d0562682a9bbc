#pragma once

/// @file
/// The body of one rank, one training step of it after the other: the items of its order, each as kernels, collectives
/// and messages; behind the last pass the remaining reductions, and the metrics.

#include "ir/plan/plan.hpp"
#include "ir/program/program.hpp"
#include "lower/lower.hpp"
#include "lower/order/orders_of_places.hpp"
#include "lower/rank_model.hpp"

namespace strata {

/// @param model as @p rank sees it. @throws Unsupported where the rank's order cannot be lowered.
Program lower_step(const Plan& plan, const RankModel& model, int rank, const OrdersOfPlaces& orders,
                   const KernelTraits& kernels);

}  // namespace strata
