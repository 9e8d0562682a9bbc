/// @file
/// The driver's slow side: dead neighbours, operations that take too long, and answers to other ranks' questions.

#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/driver.hpp"
#include "comm/world.hpp"

namespace strata::comm {
namespace {

enum QueryKind : std::int32_t { kCollectives = 0, kSendsToAsker = 1, kReceivesFromAsker = 2 };

/// How long a silent rank is given to answer before it counts as missing. Somebody inside the engine answers within a
/// tick.
constexpr double kPatienceSeconds = 1.0;

}  // namespace

void Engine::Driver::tick(std::int64_t now) {
  if (queries_ != nullptr) {
    queries_->serve();
  }
  if (active_.empty()) {
    return;
  }
  try {
    world_.check_peers();
  } catch (const CommunicationError& error) {
    throw CommunicationError(
        fmt::format("{}, while this rank is in \"{}\"", error.what(), active_.front()->request.label));
  }
  for (Slot* slot : active_) {
    const double waited_seconds = static_cast<double>(now - slot->times.begin_ns) * 1e-9;
    if (slot->times.begin_ns != 0 && waited_seconds > options_.watchdog_seconds) {
      report(*slot, now);
    }
  }
}

/// Number of operations of the kind asked for that this rank has posted to the group.
std::int64_t Engine::Driver::answer(const PeerQuery& query) {
  const std::lock_guard lock(groups_mutex_);
  for (const auto& group : groups_) {
    if (group->id == query.group_id && group->all.size() > 1) {
      const PeerOrder& order = group->peers.at(static_cast<std::size_t>(query.asker));
      switch (query.kind) {
        case kCollectives: return group->num_collectives.load(std::memory_order_acquire);
        case kSendsToAsker: return order.num_sends.load(std::memory_order_acquire);
        case kReceivesFromAsker: return order.num_receives.load(std::memory_order_acquire);
        default: break;
      }
    }
  }
  return -1;
}

void Engine::Driver::report(Slot& slot, std::int64_t now) {
  Group& group = *slot.group;
  const Request& request = slot.request;
  const bool to_peer = request.kind == Collective::send || request.kind == Collective::recv;
  const int me = group.all.index;
  std::vector<int> members;  // who should have posted the same operation
  for (int member = 0; member < group.all.size(); ++member) {
    if (member != me && (!to_peer || member == request.peer)) {
      members.push_back(member);
    }
  }
  std::vector<std::optional<std::int64_t>> counts;
  if (group.transport == Transport::shared_memory) {
    for (const int member : members) {
      SharedArea& area = *group.area;
      counts.emplace_back(!to_peer                           ? area.num_posted(member).load()
                          : request.kind == Collective::send ? area.pair(me, member).num_receives_posted.load()
                                                             : area.pair(member, me).num_sends_posted.load());
    }
  } else {
    std::vector<int> ranks;
    for (const int member : members) {
      ranks.push_back(group.all.world_ranks[static_cast<std::size_t>(member)]);
    }
    const QueryKind kind = !to_peer                           ? kCollectives
                           : request.kind == Collective::send ? kReceivesFromAsker
                                                              : kSendsToAsker;
    counts = queries_->ask(ranks, {group.id, kind, me, 0}, kPatienceSeconds);
  }
  WatchdogReport report;
  report.label = request.label;
  report.group_ranks = group.all.world_ranks;
  report.waited_seconds = static_cast<double>(now - slot.times.begin_ns) * 1e-9;
  std::string missing;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int rank = group.all.world_ranks[static_cast<std::size_t>(members[i])];
    if (!counts[i]) {
      missing += fmt::format("{}rank {} (does not answer)", missing.empty() ? "" : ", ", rank);
    } else if (*counts[i] < slot.order) {
      missing += fmt::format("{}rank {} (has posted {})", missing.empty() ? "" : ", ", rank, *counts[i]);
    } else {
      continue;
    }
    report.missing_ranks.push_back(rank);
  }
  report.message =
      fmt::format("\"{}\" ({} number {} of group {}, over {}) is not done after {:.1f} s on rank {}; missing: {}",
                  request.label, to_string(request.kind), slot.order, group.ranks_text(), group.transport_name,
                  report.waited_seconds, world_.rank(), missing.empty() ? "nobody, all have posted it" : missing);
  if (options_.on_watchdog) {
    options_.on_watchdog(report);
  }
  throw CommunicationError(report.message);
}

}  // namespace strata::comm
