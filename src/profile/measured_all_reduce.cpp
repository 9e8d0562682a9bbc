#include "profile/measured_all_reduce.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace strata::profile {
namespace {

constexpr std::int64_t small_elements = std::int64_t{1} << 18;
constexpr std::int64_t large_elements = max_all_reduced;
constexpr int num_all_reduces = 3;
/// Of two elements, one after the other: as in a step, the members are awake already.
constexpr int num_in_a_row = 16;
constexpr double longest_all_reduce_seconds = 1.0;

/// Of one of @p times in a row, on the slowest rank; the best repetition.
double seconds_of(const comm::World& world, const TimedCollectives& collectives, std::int64_t num_elements,
                  int times = 1) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < num_all_reduces; ++i) {
    world.barrier();
    double seconds[1] = {collectives(Collective::all_reduce, num_elements, times)};
    world.all_reduce_max(seconds);
    best = std::min(best, seconds[0]);
  }
  return best;
}

}  // namespace

Link measure_all_reduce(const comm::World& world, int num_members, const TimedCollectives& collectives) {
  const double ranks = num_members;
  const double latency = seconds_of(world, collectives, 2, num_in_a_row) / (2.0 * (ranks - 1.0));
  std::int64_t num_elements = small_elements;
  double seconds = seconds_of(world, collectives, num_elements);
  if (seconds * static_cast<double>(large_elements) <
      longest_all_reduce_seconds * static_cast<double>(small_elements)) {
    num_elements = large_elements;
    seconds = seconds_of(world, collectives, num_elements);
  }
  const double bytes = static_cast<double>(num_elements) * sizeof(float);
  return {latency, 2.0 * (ranks - 1.0) / ranks * bytes / seconds};
}

}  // namespace strata::profile
