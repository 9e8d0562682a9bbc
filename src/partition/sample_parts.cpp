#include "partition/sample_parts.hpp"

#include <algorithm>

namespace strata {

Chunk samples_of_sub_batch(const Plan& plan, std::span<const OperatorDecision> decisions, int sub_batch) {
  const std::int64_t all = samples_of_micro_batch(plan);
  const int ranks = most_data_ranks(plan, decisions);
  const std::int64_t of_rank = ceil_div(all, std::int64_t{ranks});
  const std::int64_t smaller = of_rank / plan.schedule.sub_batches, num_larger = of_rank % plan.schedule.sub_batches;
  const auto begin = [&](std::int64_t u) { return std::min(all, ranks * (u * smaller + std::min(u, num_larger))); };
  return {begin(sub_batch), begin(sub_batch + 1)};
}

}  // namespace strata
