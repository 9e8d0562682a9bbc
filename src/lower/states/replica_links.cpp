#include "lower/states/replica_links.hpp"

#include <fmt/core.h>

#include <string_view>

namespace strata {

ReplicaLinks::ReplicaLinks(const StagePyramid& of_pyramid, int rank, int first_stream)
    : pyramid(of_pyramid),
      stage(pyramid.stage_of(rank)),
      replica(pyramid.replica_of(rank)),
      num_replicas(pyramid.num_replicas(stage)) {
  if (is_alone()) return;
  const auto add = [&](std::string_view what, int from, int to) {
    streams.push_back(fmt::format("{}{}to{}", what, from, to));
    return first_stream + static_cast<int>(streams.size()) - 1;
  };
  partial = {.from_before = add("sums", before(), replica), .to_behind = add("sums", replica, behind())};
  whole = {.from_before = add("totals", before(), replica), .to_behind = add("totals", replica, behind())};
}

int ReplicaLinks::distance_from_last(int step) const {
  const int last = pyramid.replica_taking(stage, step, pyramid.num_stages - 1);
  return (replica - last + num_replicas) % num_replicas;
}

}  // namespace strata
