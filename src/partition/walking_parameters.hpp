#pragma once

/// @file
/// Where the parameters of stages stand while N ranks take one micro-batch each of a model of N stages and none keeps a
/// replica (cyclic data parallelism with ZeRO): a value, of one rank and training step.
///
/// A stage has an owner, rank N-1-j of stage j: the first that may read what its update has made. It keeps the stage's
/// parameters, this step's and, where some rank still reads them, the last step's, and the states of the optimizer. All
/// others have the parameters for a visit: from one time step before they read them until they have handed them on. A
/// visit is a forward or a backward; forward and backward of the last stage follow each other and are one. Ranks come
/// to a stage one after the other, so a rank hands on to the next one, where that reads the same version; the first of
/// those who do, and whoever follows the owner, has them from the owner. So each version goes once around the ranks for
/// forwards and once for backwards, and no message leaves its training step: one may begin or end anywhere.
///
/// A slot is room for a visit's parameters. Visits that are on a rank at one time have different ones.
///
/// Source: Fournier et al., Cyclic Data Parallelism, 2024, sec. 4.4; the owners are ours.

#include <vector>

#include "ir/plan/plan.hpp"
#include "partition/fresh_table.hpp"
#include "partition/replica_ring.hpp"

namespace strata {

/// True where ranks of @p plan have parameters for a visit; of one rank alone nothing goes anywhere.
bool parameters_walk(const Plan& plan);

struct ParameterWalk {
  struct Visit {
    int stage = 0;
    bool backward = false;  ///< its forward is another one
    int from = -1;          ///< the rank that sends the parameters; -1: this rank owns the stage
    bool goes_on = false;   ///< to the next rank, which reads the same
    int num_steps = 1;      ///< time steps for which they are read
    bool operator==(const Visit&) const = default;
  };
  /// What an owner sends to one who does not have it from another.
  struct Departure {
    int to = -1;
    int visit = 0;      ///< of the one who gets it, and of its stage the owner's
    bool fresh = true;  ///< θ_t, else θ_{t-1}
    bool operator==(const Departure&) const = default;
  };
  int rank = 0;
  int num_ranks = 1;
  std::vector<Visit> visits{};          ///< in the order of time: forwards up to the last stage, backwards down again
  std::vector<Departure> departures{};  ///< by rank, of one forward first

  int own_stage() const { return num_ranks - 1 - rank; }
  /// The number of the visit that @p stage is read in.
  int visit_of(int stage, bool backward) const {
    return backward && stage + 1 < num_ranks ? 2 * num_ranks - 2 - stage : stage;
  }
};

/// Of rank @p rank of as many as @p fresh has micro-batches and stages.
ParameterWalk parameter_walk(const FreshTable& fresh, int rank);

/// How the ranks sum up gradients: as replicas, but the last one hands the sum of a stage to its owner, who updates it.
ReplicaRing ring_of_owners(const FreshTable& fresh, int rank);

/// By training step of @p num_steps, which repeat, and visit: its slot, from 0 on; -1: the rank owns the stage.
std::vector<std::vector<int>> slots_of_visits(const ParameterWalk& walk, int num_steps);

}  // namespace strata
