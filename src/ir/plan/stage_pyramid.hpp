#pragma once

/// @file
/// The pyramid of ranks on which cyclic data parallelism runs beside model parallelism. With N stages j and N
/// micro-batches i a training step, stage j stands on N - j ranks, its replicas: N(N+1)/2 ranks, numbered stage by
/// stage.
///
/// Micro-batches are counted over all training steps, c = tN + i for micro-batch i of step t, and c is taken at stage j
/// by replica c mod (N - j). It comes there when c - (N - j) has just left: a replica has one micro-batch at a time,
/// all ranks together those of N(N+1)/2 stages. So consecutive micro-batches are taken by consecutive replicas, around
/// and around. Which micro-batch of a step a replica takes thus turns from step to step, and is as before after the
/// least common multiple over j of (N - j) / gcd(N, N - j) steps: 1, 2, 3, 105 for N = 2, 3, 4, 8. With a map that does
/// not turn, N = 3, 4, 8 would need 7, 11, 43 ranks instead of 6, 10, 36.
///
/// Source: Fournier et al., Cyclic Data Parallelism, 2024, sec. 4.3 and table 1, which count the ranks; the map is
/// ours.

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "ir/plan/plan.hpp"

namespace strata {

struct StagePyramid {
  int num_stages = 1;

  bool operator==(const StagePyramid&) const = default;
  int num_replicas(int stage) const { return num_stages - stage; }
  /// The world rank of replica 0 of @p stage; of the stage behind the last one: the number of ranks.
  int first_rank(int stage) const {
    const std::int64_t j = stage;
    return static_cast<int>(j * num_stages - j * (j - 1) / 2);
  }
  int num_ranks() const { return first_rank(num_stages); }
  int rank_of(int stage, int replica) const { return first_rank(stage) + replica; }
  int stage_of(int rank) const {
    int stage = 0;
    while (rank >= first_rank(stage + 1)) ++stage;
    return stage;
  }
  int replica_of(int rank) const { return rank - first_rank(stage_of(rank)); }
  /// The world ranks of all replicas of @p stage.
  std::vector<int> replicas_of(int stage) const {
    std::vector<int> ranks(static_cast<std::size_t>(num_replicas(stage)));
    std::iota(ranks.begin(), ranks.end(), first_rank(stage));
    return ranks;
  }

  /// Which replica of @p stage takes micro-batch @p micro_batch of training step @p step >= 0.
  int replica_taking(int stage, std::int64_t step, int micro_batch) const {
    return static_cast<int>((step * num_stages + micro_batch) % num_replicas(stage));
  }
  /// So many training steps later every replica takes the same micro-batches again; @p most + 1 where that is more.
  std::int64_t steps_to_return(std::int64_t most) const {
    std::int64_t steps = 1;
    for (int j = 0; j < num_stages && steps <= most; ++j) {
      steps = std::lcm(steps, std::int64_t{num_replicas(j)} / std::gcd(num_stages, num_replicas(j)));
    }
    return steps <= most ? steps : most + 1;
  }
};

/// Of ranks that are placed so, with one axis `stage`; none: they are placed otherwise.
inline std::optional<StagePyramid> pyramid_of(const Mesh& mesh) {
  if (mesh.placement != "pyramid") return std::nullopt;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.name == "stage") return StagePyramid{axis.size};
  }
  return StagePyramid{1};
}

}  // namespace strata
