#pragma once

/// @file
/// Where gradients of one rank stand: a value, equal throughout a step.
///
/// Gradients stand in buckets, in the order in which the backward pass completes them, so that one all-reduce a bucket
/// can start as soon as its last gradient is there. A bucket holds p shards of parameters of one stage with equal
/// factors and the same copies, which are updated together. How buckets are filled and summed is the business of
/// gradient_sums.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/gradient_contributions.hpp"
#include "lower/states/shard_groups.hpp"
#include "partition/shards.hpp"

namespace strata {

/// A parameter that other stages use too.
struct Copies {
  int group = -1;        ///< a rank of each of these stages
  bool counted = false;  ///< in the norm of all gradients: by one of the copies
};

struct GradientBucket {
  std::vector<int> parameters{};  ///< as they stand in it
  std::int64_t num_elements = 0;  ///< of their p shards
  std::int64_t num_kept = 0;      ///< of what this rank updates of them
  bool is_sharded = false;        ///< g > p: one buffer a micro-batch, of which own parts are kept; else one for all
  bool scatters = false;          ///< own parts come from a reduce-scatter a tensor (optimizer.gradients)
  bool counted = true;            ///< in the norm of all gradients
  bool operator==(const GradientBucket&) const = default;
  /// Own parts are kept apart; otherwise the update reads the bucket itself.
  bool keeps() const { return is_sharded || scatters; }
};

struct GradientBuckets {
  /// Of a parameter, in elements.
  struct Place {
    int bucket = -1;              ///< -1: no operator of this rank's has a gradient of it
    std::int64_t begin = 0;       ///< of its p shard in the bucket
    std::int64_t kept_begin = 0;  ///< of its updated part among what is kept of the bucket
    bool operator==(const Place&) const = default;
  };
  std::vector<GradientBucket> buckets{};
  std::vector<Place> places{};    ///< by parameter of the graph
  std::vector<int> parameters{};  ///< in the order in which they are completed: the order of updates
  bool operator==(const GradientBuckets&) const = default;
  const Place& place(int parameter) const { return places[static_cast<std::size_t>(parameter)]; }
};

/// @param contributions of @p order.  @param shards by parameter.  @param copies by parameter that has some.
GradientBuckets gradient_buckets(const Plan& plan, const StepOrder& order,
                                 std::span<const GradientContribution> contributions,
                                 std::span<const ParameterShard> shards, const ShardGroups& groups,
                                 const std::map<int, Copies>& copies);

}  // namespace strata
