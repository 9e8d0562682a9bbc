#include "app/measured_all_reduce.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

namespace strata::app {
namespace {

constexpr std::int64_t small_elements = std::int64_t{1} << 18;
constexpr std::int64_t large_elements = std::int64_t{1} << 22;
constexpr int num_repetitions = 3;
constexpr double longest_seconds = 1.0;

/// Of the slowest rank; the best repetition.
double seconds_of(const comm::World& world, comm::Engine& engine, const comm::Request& request) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < num_repetitions; ++i) {
    world.barrier();
    const auto begin = std::chrono::steady_clock::now();
    engine.wait(engine.post(request));
    double seconds[1] = {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
    world.all_reduce_max(seconds);
    best = std::min(best, seconds[0]);
  }
  return best;
}

}  // namespace

Link measure_all_reduce(const comm::World& world, comm::Engine& engine, int group) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  if (world.size() == 1) return {unknown, unknown};
  std::vector<float> values(static_cast<std::size_t>(large_elements));
  comm::Request request;
  request.input = values.data();
  request.output = values.data();
  request.group = group;
  request.label = "all_reduce before training";
  const double ranks = world.size();
  request.num_elements = 2;
  const double latency = seconds_of(world, engine, request) / (2.0 * (ranks - 1.0));
  request.num_elements = small_elements;
  double seconds = seconds_of(world, engine, request);
  if (seconds * static_cast<double>(large_elements) < longest_seconds * static_cast<double>(small_elements)) {
    request.num_elements = large_elements;
    seconds = seconds_of(world, engine, request);
  }
  const double bytes = static_cast<double>(request.num_elements) * sizeof(float);
  return {latency, 2.0 * (ranks - 1.0) / ranks * bytes / seconds};
}

}  // namespace strata::app
