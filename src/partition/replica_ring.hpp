#pragma once

/// @file
/// How the replicas of cyclic data parallelism, which take a micro-batch each, hand on what they share: a value, by
/// stage of the model.
///
/// Gradients: replica i adds those of its micro-batch to the sum that replica i-1 has made, and hands it on; the last
/// replica has the whole sum and updates the stage, or gives it to the one that does: the first user of a stage reads
/// what is updated before all others, replica N-1-j stage j of N.
///
/// Parameters: in training step t every replica comes to have θ_t. One that reads it in this step has it before its
/// forward; one that still reads θ_{t-1} has it behind its backward, in the same buffer, or meanwhile in a spare one,
/// to read it in step t+1. They come from the replica that updates the stage: to the first of each kind at once, and on
/// from reader to reader, when each has come so far that the next one will need it (relay); or to all at once (direct).
///
/// Source: Fournier et al., Cyclic Data Parallelism, 2024, sec. 3 and fig. 1; who hands on to whom is ours.

#include <cstdint>
#include <set>
#include <vector>

#include "ir/plan/plan.hpp"

namespace strata {

/// When θ_t of a stage comes to a replica in training step t.
enum class Arrival : std::uint8_t {
  by_update,       ///< the replica's own
  before_forward,  ///< which reads it
  behind_backward,
  in_spare_buffer  ///< at any time of the step
};

struct ReplicaRing {
  struct Reader {
    int replica = 0;
    Arrival arrival = Arrival::before_forward;
    bool operator==(const Reader&) const = default;
  };
  struct OfStage {
    int updater = 0;  ///< the replica that updates it
    Arrival arrival = Arrival::by_update;
    int from = -1;             ///< the replica that sends it; -1: none does
    std::vector<Reader> to{};  ///< to whom this one sends it
    int num_versions = 1;      ///< buffers of the parameters that this replica has
  };
  int replica = 0;
  int num_replicas = 1;
  std::vector<OfStage> stages{};
  std::set<Arrival> arrivals{};  ///< of parameters from others, at whichever replica and stage
  bool first_users_update = false;
  bool parameters_walk = false;  ///< nobody is a whole replica: see walking_parameters.hpp

  bool updates(int stage) const { return updater(stage) == replica; }
  /// It has the whole sums, of all stages.
  bool is_last() const { return replica + 1 == num_replicas; }
  int last() const { return num_replicas - 1; }
  /// The neighbours on the way of the sums; -1: none.
  int sums_from() const { return replica - 1; }
  int sums_to() const { return is_last() ? -1 : replica + 1; }
  /// From whom the whole sum of @p stage comes to be updated here, and to whom it goes from here; -1: nobody.
  int whole_sum_from(int stage) const { return !is_last() && updates(stage) ? last() : -1; }
  int whole_sum_to(int stage) const { return is_last() && !updates(stage) ? updater(stage) : -1; }
  /// With which messages those of a stage from replica @p from belong, which all come in one order. A first user sends
  /// its stage when it is updated, whatever it hands on of other stages.
  Arrival link(int stage, int from, Arrival arrival) const {
    const bool from_update = first_users_update && updater(stage) == from;
    return from_update ? Arrival::by_update : arrival;
  }

 private:
  int updater(int stage) const { return stages[static_cast<std::size_t>(stage)].updater; }
};

/// The replica that updates stage @p stage.
int updater_of_stage(const Schedule& schedule, int num_stages, int stage);

/// Of replica @p replica of a plan whose replicas take a micro-batch each.
ReplicaRing replica_ring(const Schedule& schedule, int num_stages, int replica);

}  // namespace strata
