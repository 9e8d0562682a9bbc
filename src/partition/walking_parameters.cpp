#include "partition/walking_parameters.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace strata {
namespace {

char digit(const FreshTable& fresh, int rank, int stage) {
  return fresh[static_cast<std::size_t>(rank)][static_cast<std::size_t>(stage)];
}

int owner_of_stage(int num_ranks, int stage) { return num_ranks - 1 - stage; }

/// From whom @p rank has the parameters of @p stage; -1: it owns them.
int supplier_to(const FreshTable& fresh, int rank, int stage) {
  const int owner = owner_of_stage(static_cast<int>(fresh.size()), stage);
  if (rank == owner) return -1;
  const bool goes_on = rank > 0 && digit(fresh, rank - 1, stage) == digit(fresh, rank, stage);
  return goes_on ? rank - 1 : owner;
}

/// Time steps [first, last] of a rank, its first forward's is 0, for which a visit has its slot.
struct Stay {
  int first = 0, last = 0;
};

Stay stay_of(const ParameterWalk& walk, int visit) {
  const ParameterWalk::Visit& v = walk.visits[static_cast<std::size_t>(visit)];
  const int begin = v.backward ? 2 * walk.num_ranks - 1 - v.stage : v.stage;
  return {begin - 1, begin + v.num_steps - 1 + (v.goes_on ? 1 : 0)};
}

/// On a circle of @p period time steps.
bool meet(const Stay& a, const Stay& b, int period) {
  for (const int turn : {-period, 0, period}) {
    if (a.first <= b.last + turn && b.first + turn <= a.last) return true;
  }
  return false;
}

/// By stay a number that no other has while it lasts, given from @p start on.
std::vector<int> numbers_on_circle(const std::vector<Stay>& stays, int period, std::size_t start) {
  std::vector<int> numbers(stays.size(), -1);
  for (std::size_t i = 0; i < stays.size(); ++i) {
    const std::size_t here = (start + i) % stays.size();
    std::vector<bool> taken(stays.size(), false);
    for (std::size_t other = 0; other < stays.size(); ++other) {
      if (numbers[other] >= 0 && meet(stays[other], stays[here], period)) {
        taken[static_cast<std::size_t>(numbers[other])] = true;
      }
    }
    numbers[here] = static_cast<int>(std::ranges::find(taken, false) - taken.begin());
  }
  return numbers;
}

}  // namespace

bool parameters_walk(const Plan& plan) {
  return plan.mesh.placement == "zero-ring" && axis_size(plan.mesh, "micro_batch") > 1;
}

ParameterWalk parameter_walk(const FreshTable& fresh, int rank) {
  const int n = static_cast<int>(fresh.size());
  ParameterWalk walk{.rank = rank, .num_ranks = n};
  for (int v = 0; v < 2 * n - 1; ++v) {
    const bool backward = v >= n;
    const int stage = backward ? 2 * n - 2 - v : v;
    const int from = supplier_to(fresh, rank, stage);
    walk.visits.push_back({.stage = stage,
                           .backward = backward,
                           .from = from,
                           .goes_on = from >= 0 && rank + 1 < n && supplier_to(fresh, rank + 1, stage) == rank,
                           .num_steps = stage + 1 == n ? 2 : 1});
  }
  const int own = walk.own_stage();
  for (int to = 0; to < n; ++to) {
    if (supplier_to(fresh, to, own) != rank) continue;
    for (int v = 0; v < 2 * n - 1; ++v) {
      if (walk.visits[static_cast<std::size_t>(v)].stage != own) continue;
      walk.departures.push_back({.to = to, .visit = v, .fresh = digit(fresh, to, own) == '1'});
    }
  }
  return walk;
}

ReplicaRing ring_of_owners(const FreshTable& fresh, int rank) {
  const int n = static_cast<int>(fresh.size());
  ReplicaRing ring{.replica = rank, .num_replicas = n, .parameters_walk = true};
  for (int j = 0; j < n; ++j) {
    const int owner = owner_of_stage(n, j);
    const bool has_stale_reader =
        std::ranges::any_of(fresh, [&](const auto& row) { return row[static_cast<std::size_t>(j)] == '0'; });
    ring.stages.push_back({.updater = owner, .num_versions = owner != rank ? 0 : has_stale_reader ? 2 : 1});
  }
  return ring;
}

std::vector<std::vector<int>> slots_of_visits(const ParameterWalk& walk, int num_steps) {
  const int length = 2 * walk.num_ranks;  // time steps of a training step
  std::vector<std::vector<int>> slots(static_cast<std::size_t>(num_steps), std::vector<int>(walk.visits.size(), -1));
  std::vector<Stay> stays;
  std::vector<int*> slot_of_stay;
  for (int step = 0; step < num_steps; ++step) {
    for (std::size_t v = 0; v < walk.visits.size(); ++v) {
      if (walk.visits[v].from < 0) continue;
      const Stay stay = stay_of(walk, static_cast<int>(v));
      stays.push_back({stay.first + step * length, stay.last + step * length});
      slot_of_stay.push_back(&slots[static_cast<std::size_t>(step)][v]);
    }
  }
  // One after the other into the first slot that is free: how many that takes depends on where the circle is begun.
  std::vector<int> best;
  for (std::size_t start = 0; start < stays.size(); ++start) {
    std::vector<int> now = numbers_on_circle(stays, num_steps * length, start);
    if (best.empty() || std::ranges::max(now) < std::ranges::max(best)) best = std::move(now);
  }
  for (std::size_t i = 0; i < best.size(); ++i) *slot_of_stay[i] = best[i];
  return slots;
}

}  // namespace strata
