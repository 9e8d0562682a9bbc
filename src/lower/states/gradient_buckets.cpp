#include "lower/states/gradient_buckets.hpp"

#include <algorithm>
#include <cstddef>

namespace strata {
namespace {

/// As the last contribution of a micro-batch completes them; those of one operator by their number.
std::vector<int> in_order_of_completion(std::span<const GradientContribution> contributions,
                                        std::size_t num_parameters) {
  std::vector<const GradientContribution*> completes(num_parameters, nullptr);
  for (const GradientContribution& c : contributions) completes[static_cast<std::size_t>(c.parameter)] = &c;
  std::vector<int> parameters;
  for (std::size_t p = 0; p < num_parameters; ++p) {
    if (completes[p] != nullptr) parameters.push_back(static_cast<int>(p));
  }
  std::ranges::stable_sort(parameters, [&](int a, int b) {
    const GradientContribution& of_a = *completes[static_cast<std::size_t>(a)];
    const GradientContribution& of_b = *completes[static_cast<std::size_t>(b)];
    return of_a.item != of_b.item ? of_a.item < of_b.item : of_a.op > of_b.op;
  });
  return parameters;
}

/// By parameter: the place of its update among the items; -1: it has none.
std::vector<int> update_of_parameters(const StepOrder& order, std::size_t num_parameters) {
  std::vector<int> update_of(num_parameters, -1);
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    for (const int p : order.items[i].parameters) update_of[static_cast<std::size_t>(p)] = static_cast<int>(i);
  }
  return update_of;
}

/// By parameter: the stage whose backward completes its gradient; -1: none of this rank's does.
std::vector<int> stage_of_parameters(const StepOrder& order, std::span<const GradientContribution> contributions,
                                     std::size_t num_parameters) {
  std::vector<int> stages(num_parameters, -1);
  for (const GradientContribution& c : contributions) {
    const OrderItem& item = order.items[static_cast<std::size_t>(c.item)];
    stages[static_cast<std::size_t>(c.parameter)] = order.shape.segments[static_cast<std::size_t>(item.segment)].stage;
  }
  return stages;
}

}  // namespace

GradientBuckets gradient_buckets(const Plan& plan, const StepOrder& order,
                                 std::span<const GradientContribution> contributions,
                                 std::span<const ParameterShard> shards, const ShardGroups& groups,
                                 const std::map<int, Copies>& copies) {
  GradientBuckets all;
  all.parameters = in_order_of_completion(contributions, shards.size());
  all.places.resize(shards.size());
  const std::vector<int> update_of = update_of_parameters(order, shards.size());
  const std::vector<int> stage_of = stage_of_parameters(order, contributions, shards.size());
  const auto shard = [&](int p) -> const ParameterShard& { return shards[static_cast<std::size_t>(p)]; };
  bool closed = true;
  for (const int p : all.parameters) {
    // A parameter with copies elsewhere is summed and counted by itself: its bucket has no other.
    const auto copy = copies.find(p);
    const bool has_copies = copy != copies.end();
    const int before = all.buckets.empty() ? p : all.buckets.back().parameters.front();
    const bool other_groups = &groups.of(before) != &groups.of(p);
    const bool other_update = update_of[static_cast<std::size_t>(p)] != update_of[static_cast<std::size_t>(before)];
    const bool other_stage = stage_of[static_cast<std::size_t>(p)] != stage_of[static_cast<std::size_t>(before)];
    if (closed || has_copies || other_groups || other_update || other_stage) {
      const StateFactors& f = shard(p).factors;
      all.buckets.push_back({.is_sharded = f.g != f.p,
                             .scatters = plan.optimizer.gradients == "reduce_scatter" && groups.of(p).spread >= 0,
                             .counted = !has_copies || copy->second.counted});
    }
    GradientBucket& bucket = all.buckets.back();
    all.places[static_cast<std::size_t>(p)] = {static_cast<int>(all.buckets.size()) - 1, bucket.num_elements,
                                               bucket.num_kept};
    bucket.num_elements += shard(p).held.size;
    bucket.num_kept += shard(p).updated.size;
    bucket.parameters.push_back(p);
    closed = has_copies || bucket.num_elements * size_of(plan.dtypes.gradient) >= plan.overlap.bucket_bytes;
  }
  return all;
}

}  // namespace strata
