#include "partition/ring_pace.hpp"

#include <fmt/core.h>

#include "base/error.hpp"

namespace strata {

std::optional<RingPace> ring_pace(const Schedule& schedule, int num_stages, int replica) {
  if (schedule.shift == "free") return std::nullopt;
  const int num_replicas = schedule.micro_batches;
  const int num_passes = 2 * num_stages;
  STRATA_INVARIANT(num_passes % num_replicas == 0, fmt::format("{} passes over {} replicas", num_passes, num_replicas));
  const int distance = num_passes / num_replicas;
  return RingPace{.replica = replica,
                  .num_replicas = num_replicas,
                  .num_passes = num_passes,
                  .lead = schedule.shift == "paced" ? distance - 1 : distance - 2};
}

}  // namespace strata
