#include "exec/cuda/communicators.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/device_info.hpp"

namespace strata::cuda {
namespace {

/// Thread blocks of a communicator of two. Messages run beside each other and beside collectives, in no order that all
/// ranks agree on: together they must fit on a GPU. A stage has four such communicators; NCCL's most for each would be
/// more than an H100 has multiprocessors (132).
constexpr int max_message_blocks = 8;

constexpr std::int64_t health_period_ns = 1'000'000;

std::string text_of(ncclResult_t result) {
  return fmt::format("NCCL: {} ({})", ncclGetErrorString(result), ncclGetLastError(nullptr));
}

/// Identifiers, made by the first member of each communicator, known to all ranks. @return by communicator.
std::vector<ncclUniqueId> exchange_ids(const comm::World& world, const std::vector<AgreedCommunicator>& agreed) {
  std::string mine;
  for (const AgreedCommunicator& communicator : agreed) {
    if (communicator.key.ranks.front() != world.rank()) continue;
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    mine.append(id.internal, sizeof id.internal);
  }
  const std::vector<std::string> all = world.all_gather(mine);
  std::vector<std::size_t> num_taken(all.size(), 0);
  std::vector<ncclUniqueId> ids(agreed.size());
  for (std::size_t c = 0; c < agreed.size(); ++c) {
    const auto maker = static_cast<std::size_t>(agreed[c].key.ranks.front());
    std::memcpy(ids[c].internal, all[maker].data() + num_taken[maker]++ * sizeof ids[c].internal,
                sizeof ids[c].internal);
  }
  return ids;
}

/// NCCL says so too, but as an invalid usage that reads like a bug of ours.
void refuse_shared_devices(const comm::World& world, const std::vector<AgreedCommunicator>& agreed) {
  const std::vector<std::string> devices = world.all_gather(device_identity());
  for (const AgreedCommunicator& communicator : agreed) {
    std::map<std::string, int> rank_of_device;
    for (const int rank : communicator.key.ranks) {
      const auto [found, is_new] = rank_of_device.emplace(devices[static_cast<std::size_t>(rank)], rank);
      if (!is_new) {
        throw Unsupported(fmt::format("NCCL {}: ranks {} and {} of group {} share the GPU {}; each needs its own",
                                      nccl_version(), found->second, rank, communicator.key.group, found->first));
      }
    }
  }
}

}  // namespace

void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw CommunicationError(fmt::format("{}: {}", what, text_of(result)));
}

std::string nccl_version() {
  int version = 0;
  check(ncclGetVersion(&version), "ncclGetVersion");
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Communicators::Communicators(const std::vector<CommunicatorUse>& uses, const NcclOptions& options) : options_(options) {
  const std::vector<AgreedCommunicator> agreed = agree(options.world->all_gather(to_text(uses)));
  refuse_shared_devices(*options.world, agreed);
  // The first messages; freed last, since that waits for them.
  const DeviceArena word(1, ArenaMemory::device);
  try {
    create(agreed);
    connect_messages(word.data());
  } catch (...) {
    abort();  // the destructor of what was not constructed does not run
    throw;
  }
}

void Communicators::create(const std::vector<AgreedCommunicator>& agreed) {
  const int rank = options_.world->rank();
  const std::vector<ncclUniqueId> ids = exchange_ids(*options_.world, agreed);
  for (std::size_t c = 0; c < agreed.size(); ++c) {
    const std::vector<int>& ranks = agreed[c].key.ranks;
    const auto me = std::ranges::find(ranks, rank);
    if (me == ranks.end()) continue;
    Member& member = members_.emplace_back();
    member.key = agreed[c].key;
    member.index = static_cast<int>(me - ranks.begin());
    member.equal_addresses = agreed[c].equal_addresses;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (member.key.messages) config.maxCTAs = max_message_blocks;
    check(ncclCommInitRankConfig(&member.handle, static_cast<int>(ranks.size()), ids[c], member.index, &config),
          "ncclCommInitRankConfig");
  }
}

/// NCCL connects two ranks when they first speak, and the host of each then waits for the other's: here they meet in
/// the order of communicators, in a step they would in that of their Programs, which may be a circle.
void Communicators::connect_messages(std::byte* word) {
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(std::make_unique<Stream>());
  const cudaStream_t stream = streams.front()->get();
  std::deque<Event> sent;
  std::deque<std::string> labels;
  std::vector<InFlight> messages;
  for (std::size_t c = 0; c < members_.size(); ++c) {
    const Member& member = members_[c];
    if (!member.key.messages) continue;
    check(member.index == 0 ? ncclSend(word, 1, ncclUint8, 1, member.handle, stream)
                            : ncclRecv(word, 1, ncclUint8, 0, member.handle, stream),
          "the first message");
    labels.push_back(fmt::format("the first message of ranks {}", fmt::join(member.key.ranks, " and ")));
    sent.emplace_back(Event::Kind::order).record(stream);
    messages.push_back({.is_done = [&event = sent.back()] { return event.complete(); },
                        .communicator = static_cast<int>(c),
                        .label = &labels.back()});
  }
  wait(streams, messages);
}

Communicators::~Communicators() {
  // NCCL's own end waits for what is under way, and for the other ranks, which do not come where this one alone fails.
  if (failed_ || std::uncaught_exceptions() > 0) {
    abort();
    return;
  }
  for (const Member& member : members_) {
    // Nothing can be done about a failure here.
    if (member.registration != nullptr) static_cast<void>(ncclCommDeregister(member.handle, member.registration));
    static_cast<void>(ncclCommDestroy(member.handle));
  }
}

int Communicators::number(const CommunicatorKey& key) const {
  const auto found = std::ranges::find(members_, key, &Member::key);
  STRATA_INVARIANT(found != members_.end(), fmt::format("no communicator was made for group {}", key.group));
  return static_cast<int>(found - members_.begin());
}

void Communicators::register_arena(std::byte* data, std::int64_t size_bytes) {
  for (Member& member : members_) {
    if (!member.equal_addresses || member.key.ranks.size() == 1 || size_bytes == 0) continue;
    check(ncclCommRegister(member.handle, data, static_cast<std::size_t>(size_bytes), &member.registration),
          "ncclCommRegister");
  }
}

void Communicators::wait(std::span<const std::unique_ptr<Stream>> streams, std::span<const InFlight> collectives) {
  wait_until([&] { return std::ranges::all_of(streams, [](const auto& stream) { return stream->idle(); }); },
             collectives);
}

void Communicators::wait(const Event& event, std::span<const InFlight> collectives) {
  wait_until([&] { return event.complete(); }, collectives);
}

void Communicators::wait_for_last(std::span<const InFlight> collectives) {
  wait_until([&] { return collectives.back().is_done(); }, collectives);
}

template <typename Condition>
void Communicators::wait_until(const Condition& condition, std::span<const InFlight> collectives) {
  const std::int64_t begin = now_ns();
  std::int64_t next_check = begin + health_period_ns;
  while (!condition()) {
    if (const std::int64_t now = now_ns(); now >= next_check) {
      check_health(collectives, now - begin);
      next_check = now + health_period_ns;
    }
    std::this_thread::yield();
  }
}

void Communicators::check_health(std::span<const InFlight> collectives, std::int64_t waited_ns) {
  const auto stuck = [&](int communicator) -> const InFlight* {
    for (const InFlight& collective : collectives) {
      const bool concerned = communicator < 0 || collective.communicator == communicator;
      if (concerned && !collective.is_done()) return &collective;
    }
    return nullptr;
  };
  for (std::size_t c = 0; c < members_.size(); ++c) {
    ncclResult_t error = ncclSuccess;
    check(ncclCommGetAsyncError(members_[c].handle, &error), "ncclCommGetAsyncError");
    if (error == ncclSuccess || error == ncclInProgress) continue;
    const InFlight* const in = stuck(static_cast<int>(c));
    fail(in != nullptr ? *in->label : "group " + members_[c].key.group, text_of(error));
  }
  const InFlight* const in = stuck(-1);
  const std::string label = in != nullptr ? *in->label : "kernels that wait for no other rank";
  try {
    options_.world->check_peers();
  } catch (const CommunicationError& e) {
    fail(label, e.what());
  }
  const double waited_seconds = static_cast<double>(waited_ns) * 1e-9;
  if (waited_seconds < options_.watchdog_seconds) return;
  const std::vector<int> group = in != nullptr ? ranks(in->communicator) : std::vector<int>{options_.world->rank()};
  std::string reason = fmt::format("not complete {:.1f} s after the host began to wait", waited_seconds);
  if (in != nullptr) {
    reason +=
        fmt::format("; its ranks are {}, and NCCL does not tell which of them it waits for", fmt::join(group, ", "));
  }
  if (options_.on_watchdog) {
    options_.on_watchdog({.label = label,
                          .message = label + ": " + reason,
                          .group_ranks = group,
                          .missing_ranks = {},
                          .waited_seconds = waited_seconds});
  }
  fail(label, reason);
}

void Communicators::check_call(ncclResult_t result, const std::string& label, int communicator) {
  if (result == ncclSuccess) return;
  fail(label, fmt::format("{}; ranks {}", text_of(result), fmt::join(ranks(communicator), ", ")));
}

void Communicators::fail(const std::string& label, const std::string& reason) {
  failed_ = true;
  throw CommunicationError(label + ": " + reason);
}

void Communicators::abort() noexcept {
  failed_ = true;
  if (std::exchange(aborted_, true)) return;
  // Together: the end of one frees memory, which waits for the kernels of the others.
  static_cast<void>(ncclGroupStart());
  for (const Member& member : members_) {
    if (member.handle != nullptr) static_cast<void>(ncclCommAbort(member.handle));
  }
  static_cast<void>(ncclGroupEnd());
}

}  // namespace strata::cuda
