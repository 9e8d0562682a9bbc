#include "partition/replica_ring.hpp"

#include <algorithm>
#include <cstddef>

#include "base/error.hpp"
#include "partition/fresh_table.hpp"

namespace strata {
namespace {

/// Readers of one kind, as they have their turn: the micro-batches of a step begin one after the other.
std::vector<int> readers(const FreshTable& table, std::size_t stage, char fresh, int updater) {
  std::vector<int> all;
  for (int i = 0; i < std::ssize(table); ++i) {
    if (i != updater && table[static_cast<std::size_t>(i)][stage] == fresh) all.push_back(i);
  }
  return all;
}

/// From whom replica @p replica has what goes through @p readers; -1: it is none of them.
int sender_to(int replica, const std::vector<int>& readers, int updater, bool relays) {
  const auto at = std::ranges::find(readers, replica);
  if (at == readers.end()) return -1;
  return relays && at != readers.begin() ? *(at - 1) : updater;
}

}  // namespace

int updater_of_stage(const Schedule& schedule, int num_stages, int stage) {
  const int last = schedule.micro_batches - 1;
  if (schedule.updater != "first_user") return last;
  STRATA_INVARIANT(num_stages == schedule.micro_batches, "a first user a stage");
  return last - stage;
}

ReplicaRing replica_ring(const Schedule& schedule, int num_stages, int replica) {
  ReplicaRing ring{.replica = replica, .num_replicas = schedule.micro_batches};
  ring.first_users_update = schedule.updater == "first_user";
  const FreshTable table = fresh_table(schedule, num_stages);
  const bool relays = schedule.spread == "relay";
  for (int j = 0; j < num_stages; ++j) {
    const auto stage = static_cast<std::size_t>(j);
    const bool is_fresh = table[static_cast<std::size_t>(replica)][stage] == '1';
    const bool has_spare = j < schedule.spare_stages;
    const int updater = updater_of_stage(schedule, num_stages, j);
    ring.stages.push_back({.updater = updater});
    ReplicaRing::OfStage& here = ring.stages.back();
    here.num_versions = !is_fresh && (ring.updates(j) || has_spare) ? 2 : 1;
    for (const char fresh : {'1', '0'}) {
      const Arrival arrival = fresh == '1' ? Arrival::before_forward
                              : has_spare  ? Arrival::in_spare_buffer
                                           : Arrival::behind_backward;
      const std::vector<int> all = readers(table, stage, fresh, updater);
      for (const int reader : all) {
        const int from = sender_to(reader, all, updater, relays);
        ring.arrivals.insert(ring.link(j, from, arrival));
        if (from == replica) here.to.push_back({reader, arrival});
        if (reader != replica) continue;
        here.from = from;
        here.arrival = arrival;
      }
    }
  }
  return ring;
}

}  // namespace strata
