#include "partition/replica_ring.hpp"

#include <algorithm>
#include <cstddef>

#include "partition/fresh_table.hpp"

namespace strata {
namespace {

/// Readers of one kind, as they have their turn: the micro-batches of a step begin one after the other.
std::vector<int> readers(const FreshTable& table, std::size_t stage, char fresh) {
  std::vector<int> all;
  for (std::size_t i = 0; i + 1 < table.size(); ++i) {
    if (table[i][stage] == fresh) all.push_back(static_cast<int>(i));
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

ReplicaRing replica_ring(const Schedule& schedule, int num_stages, int replica) {
  ReplicaRing ring{.replica = replica, .num_replicas = schedule.micro_batches};
  const FreshTable table = fresh_table(schedule, num_stages);
  const bool relays = schedule.spread == "relay";
  for (int j = 0; j < num_stages; ++j) {
    const auto stage = static_cast<std::size_t>(j);
    const bool is_fresh = table[static_cast<std::size_t>(replica)][stage] == '1';
    const bool has_spare = j < schedule.spare_stages;
    ReplicaRing::OfStage& here = ring.stages.emplace_back();
    here.num_versions = !is_fresh && (ring.updates() || has_spare) ? 2 : 1;
    for (const char fresh : {'1', '0'}) {
      const Arrival arrival = fresh == '1' ? Arrival::before_forward
                              : has_spare  ? Arrival::in_spare_buffer
                                           : Arrival::behind_backward;
      const std::vector<int> all = readers(table, stage, fresh);
      if (!all.empty()) ring.arrivals.insert(arrival);
      if (const int from = sender_to(replica, all, ring.updater(), relays); from >= 0) {
        here.from = from;
        here.arrival = arrival;
      }
      for (const int reader : all) {
        if (sender_to(reader, all, ring.updater(), relays) == replica) here.to.push_back({reader, arrival});
      }
    }
  }
  return ring;
}

}  // namespace strata
