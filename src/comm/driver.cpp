/// @file
/// This file is an operation's way through the engine: it is posted, moved by whoever drives, slept for and completed.

#include "comm/driver.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/environment.hpp"
#include "comm/decompose.hpp"
#include "comm/footprint.hpp"
#include "comm/mpi/mpi_chain.hpp"
#include "comm/reduce.hpp"
#include "comm/shm/shared_exchange.hpp"
#include "comm/shm/shared_pair.hpp"
#include "comm/sleeping_wait.hpp"
#include "comm/world.hpp"

namespace strata::comm {
namespace {

/// Peers and watchdog are looked at this often; also how late a question of another rank's watchdog is answered.
constexpr std::int64_t kTickNs = 100'000'000;

/// About what going to sleep and being woken costs.
constexpr std::int64_t kSpinNs = 20'000;

/// struct sched_attr of sched_setattr(2), which glibc does not declare (and <linux/sched/types.h> clashes with it).
struct SchedulerAttributes {
  std::uint32_t size = 48;
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};
static_assert(sizeof(SchedulerAttributes) == 48);

/// The communication thread runs for microseconds and should run at once: a short time slice gives it an early deadline
/// under Linux's EEVDF scheduler without taking anything from others, and timers without slack wake it when asked.
/// Kernels that know neither ignore it.
void prefer_short_waits() {
  SchedulerAttributes attributes;
  attributes.runtime_ns = 100'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
  prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
}

}  // namespace

OwnedCommunicator::OwnedCommunicator(const World& world) : handle_(duplicate_sleeping(MPI_COMM_WORLD, &world)) {}

OwnedCommunicator::~OwnedCommunicator() {
  if (std::uncaught_exceptions() == 0) {
    MPI_Comm_free(&handle_);
  }
}

Engine::Driver::Driver(const World& world, const EngineOptions& options)
    : world_(world),
      options_(options),
      data_(world),
      control_(world),
      maker_(world, control_.handle(), options),
      emulated_links_(world.rank(), options.emulated_link.value_or(EmulatedLink{}), options.emulated_nodes),
      medium_{data_.handle(), options.emulated_link ? &emulated_links_ : nullptr},
      doorbell_(maker_.own_doorbell()),
      slots_(static_cast<std::size_t>(std::max(16, options.num_ticket_slots))),
      machines_(kNumMachineKinds),
      idle_machines_(kNumMachineKinds) {
  active_.reserve(slots_.size());
  for (Slot& slot : slots_) {
    slot.after.reserve(8);  // so that posting allocates nothing
  }
  if (world.size() > 1) {
    queries_ =
        std::make_unique<PeerQueries>(control_.handle(), [this](const PeerQuery& query) { return answer(query); });
  }
  next_tick_ns_ = now_ns() + kTickNs;
  const int num_cores = options.num_cores_on_node > 0 ? options.num_cores_on_node : available_cores();
  // Who waits may spin for a moment on a core that is its own anyway, but never on one that a neighbour could use.
  wait_spin_ns_ = num_cores >= world.ranks_on_node() * options.num_compute_threads ? kSpinNs : 0;
  thread_spin_ns_ = num_cores >= world.ranks_on_node() * (options.num_compute_threads + 1) ? kSpinNs : 0;
  // See tests/bench/bench_overlap.cpp: the thread wins wherever the wire waits by itself; without free cores it
  // neither helps nor hurts transfers that are CPU work.
  const bool wants_thread = options.progress != ProgressMode::polling;
  if (wants_thread && world.size() > 1) {
    thread_ = std::thread([this] { run_thread(); });
  }
}

Engine::Driver::~Driver() {
  stop_.store(true);
  if (thread_.joinable()) {
    doorbell_.ring();
    thread_.join();
  }
}

int Engine::Driver::create_group(const std::vector<int>& world_ranks) {
  rethrow_failure();
  auto group = maker_.make(world_ranks);
  group->number = static_cast<int>(groups_.size());
  const std::lock_guard lock(groups_mutex_);
  groups_.push_back(std::move(group));
  return groups_.back()->number;
}

const Group& Engine::Driver::group(int number) const {
  STRATA_INVARIANT(number >= 0 && number < static_cast<int>(groups_.size()), fmt::format("no group {}", number));
  return *groups_[static_cast<std::size_t>(number)];
}

std::int64_t Engine::Driver::memory_bytes() const {
  std::int64_t total = machine_bytes_;
  for (const auto& group : groups_) {
    if (group->area != nullptr) {
      total += group->area->touched_bytes() / group->area->size();
    }
    if (group->transport == Transport::two_level) {
      total += kNumChannels * group->num_nodes * kWorkspaceElements * size_of(DType::f32);
    }
  }
  return total;
}

// ---- the poster's side -------------------------------------------------------------------------------------------

void Engine::Driver::rethrow_failure() {
  if (failed_.load(std::memory_order_acquire)) {
    std::rethrow_exception(failure_);
  }
}

void Engine::Driver::validate(const Request& request, const Group& group) const {
  const bool to_peer = request.kind == Collective::send || request.kind == Collective::recv;
  STRATA_INVARIANT(request.num_elements >= 0, std::string(request.label));
  STRATA_INVARIANT(request.stream >= 0, std::string(request.label));
  STRATA_INVARIANT(!(to_peer || is_rooted(request.kind)) || (request.peer >= 0 && request.peer < group.all.size()),
                   fmt::format("{}: peer {} of a group of {}", request.label, request.peer, group.all.size()));
  STRATA_INVARIANT(!to_peer || request.peer != group.all.index,
                   fmt::format("{}: rank {} to itself", request.label, world_.rank()));
  STRATA_INVARIANT(request.kind != Collective::all_to_all || request.pieces != nullptr ||
                       request.num_elements % group.all.size() == 0,
                   fmt::format("{}: all_to_all of {} elements over {} ranks", request.label, request.num_elements,
                               group.all.size()));
  if (is_reduction(request.kind)) {
    require_reducible(request.dtype);
  }
}

/// Which earlier operation of the group must be done first: collectives take turns in the group's channels, messages to
/// or from one peer follow one another.
void Engine::Driver::order_in_group(Slot& slot) {
  const std::uint64_t id = slot.id.load(std::memory_order_relaxed);
  Group& group = *slot.group;
  SharedArea* area = group.area.get();
  const int peer = slot.request.peer;
  if (slot.request.kind != Collective::send && slot.request.kind != Collective::recv) {
    const std::int64_t number = group.num_collectives.fetch_add(1, std::memory_order_release);
    slot.channel = static_cast<int>(number % kNumChannels);
    slot.order = number + 1;
    slot.after.push_back(std::exchange(group.last_in_channel[static_cast<std::size_t>(slot.channel)], id));
    if (area != nullptr && group.transport == Transport::shared_memory) {
      area->num_posted(group.all.index).store(slot.order, std::memory_order_release);
    }
    return;
  }
  PeerOrder& order = group.peers[static_cast<std::size_t>(peer)];
  const bool sends = slot.request.kind == Collective::send;
  slot.channel = kPeerChannel;
  slot.order = 1 + (sends ? order.num_sends : order.num_receives).fetch_add(1, std::memory_order_release);
  slot.after.push_back(std::exchange(sends ? order.last_send : order.last_receive, id));
  if (area != nullptr && group.transport == Transport::shared_memory) {
    const int me = group.all.index;
    (sends ? area->pair(me, peer).num_sends_posted : area->pair(peer, me).num_receives_posted)
        .store(slot.order, std::memory_order_release);
  }
}

Ticket Engine::Driver::post(std::span<const Request> requests) {
  rethrow_failure();
  STRATA_INVARIANT(!requests.empty(), "nothing is posted");
  for (const Request& request : requests) {
    validate(request, group(request.group));
    STRATA_INVARIANT(request.stream == requests.front().stream, fmt::format("{}: on another stream", request.label));
  }
  const auto stream = static_cast<std::size_t>(requests.front().stream);
  if (stream >= last_on_stream_.size()) {
    last_on_stream_.resize(stream + 1);
  }
  const Ticket previous = last_on_stream_[stream];
  for (const Request& request : requests) {
    post_behind(request, previous);
  }
  return last_on_stream_[stream] = {last_posted_.load(std::memory_order_relaxed), requests.size()};
}

void Engine::Driver::post_behind(const Request& request, Ticket previous) {
  const std::uint64_t id = last_posted_.load(std::memory_order_relaxed) + 1;
  Slot& slot = slot_of(id);
  if (const std::uint64_t owner = slot.id.load(std::memory_order_relaxed); !is_done(owner)) {
    wait(Ticket{owner});
  }
  slot.after.clear();
  for (const Ticket& ticket : request.after) {
    for (std::uint64_t i = ticket.first(); i <= ticket.id; ++i) slot.after.push_back(i);
  }
  for (std::uint64_t i = previous.first(); i < previous.id; ++i) slot.after.push_back(i);
  slot.id.store(id, std::memory_order_release);
  slot.request = request;
  slot.request.after = {};
  slot.group = &const_cast<Group&>(group(request.group));
  slot.next_primitive = 0;
  slot.machine = nullptr;
  slot.times = {.posted_ns = now_ns()};
  slot.previous = previous.id;
  order_in_group(slot);
  last_posted_.store(id, std::memory_order_release);
  if (thread_.joinable()) {
    doorbell_.ring();
  }
}

bool Engine::Driver::is_done(std::uint64_t id) {
  if (id == 0) {
    return true;
  }
  const Slot& slot = slot_of(id);
  // A slot is given to a later ticket only after its earlier one is done.
  return slot.id.load(std::memory_order_acquire) != id || slot.done_id.load(std::memory_order_acquire) == id;
}

bool Engine::Driver::is_done(Ticket ticket) {
  for (std::uint64_t id = ticket.first(); id <= ticket.id; ++id) {
    if (!is_done(id)) {
      return false;
    }
  }
  return true;
}

bool Engine::Driver::done(Ticket ticket) {
  rethrow_failure();
  return is_done(ticket);
}

void Engine::Driver::wait(Ticket ticket) {
  rethrow_failure();
  if (is_done(ticket)) {
    return;
  }
  rank_drives_.store(true, std::memory_order_release);
  try {
    const std::lock_guard lock(driver_mutex_);
    rethrow_failure();
    while (!is_done(ticket)) {
      if (drive_once() || spin(wait_spin_ns_)) {
        continue;
      }
      const std::uint32_t ring = doorbell_.prepare();
      if (drive_once() || is_done(ticket)) {
        doorbell_.cancel();
      } else {
        sleep(ring);
      }
    }
  } catch (...) {
    if (!failed_.load()) {
      failure_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
    }
    rank_drives_.store(false, std::memory_order_release);
    rank_drives_.notify_one();
    throw;
  }
  rank_drives_.store(false, std::memory_order_release);
  rank_drives_.notify_one();
}

void Engine::Driver::wait_all() {
  for (Slot& slot : slots_) {
    wait(Ticket{slot.id.load(std::memory_order_relaxed)});
  }
}

void Engine::Driver::progress() {
  rethrow_failure();
  if (has_thread()) {
    return;
  }
  try {
    drive_once();
  } catch (...) {
    failure_ = std::current_exception();
    failed_.store(true, std::memory_order_release);
    throw;
  }
}

CompletedTimes Engine::Driver::times(Ticket ticket) const {
  CompletedTimes all;
  for (std::uint64_t id = ticket.first(); id <= ticket.id; ++id) {
    const Slot& slot = slots_[id % slots_.size()];
    STRATA_INVARIANT(id != 0 && slot.id.load() == id && slot.done_id.load() == id,
                     fmt::format("times of ticket {}, whose slot has {}", id, slot.id.load()));
    if (id == ticket.first()) {
      all = slot.times;
      continue;
    }
    all.begin_ns = std::min(all.begin_ns, slot.times.begin_ns);
    all.end_ns = std::max(all.end_ns, slot.times.end_ns);
    all.bytes_sent += slot.times.bytes_sent;
  }
  return all;
}

// ---- the driver's side -------------------------------------------------------------------------------------------

Engine::Driver::MachineKind Engine::Driver::kind_of_machine(const Primitive& primitive) {
  const bool to_peer = primitive.kind == Collective::send || primitive.kind == Collective::recv;
  if (primitive.medium == Medium::shared_memory) {
    return to_peer ? kSharedPair : kSharedExchange;
  }
  if (primitive.kind == Collective::reduce) {
    return kMpiReduce;
  }
  return to_peer || primitive.kind == Collective::broadcast ? kMpiChain : kMpiExchange;
}

Machine* Engine::Driver::take_machine(const Primitive& primitive) {
  const MachineKind kind = kind_of_machine(primitive);
  auto& idle = idle_machines_[kind];
  if (idle.empty()) {
    std::unique_ptr<Machine> made;
    switch (kind) {
      case kMpiExchange:
        made = std::make_unique<MpiExchange>(medium_);
        machine_bytes_ += kMpiWindow * kMpiSegmentBytes;
        break;
      case kMpiChain: made = std::make_unique<MpiChain>(medium_); break;
      case kMpiReduce:
        made = std::make_unique<MpiChain>(medium_);
        machine_bytes_ += MpiChain::kScratchBytes;
        break;
      case kSharedExchange: made = std::make_unique<SharedExchange>(); break;
      case kSharedPair: made = std::make_unique<SharedPair>(); break;
      case kNumMachineKinds: break;
    }
    idle.push_back(made.get());
    machines_[kind].push_back(std::move(made));
  }
  Machine* machine = idle.back();
  idle.pop_back();
  machine->kind = kind;
  return machine;
}

bool Engine::Driver::may_begin(Slot& slot) {
  while (!slot.after.empty()) {
    if (!is_done(slot.after.back())) {
      return false;
    }
    slot.after.pop_back();
  }
  return is_done(slot.previous) || lets_next_begin(slot.previous, slot);
}

/// Streams are in order: an operation is done when the one before is, and nothing can tell whether it began earlier. It
/// does where the other's last messages are on a wire and the two touch different memory, so that the wire does not
/// stand still while ranks find out that one has ended: gathers of 256 bytes in a row take half the time, of 256 KiB at
/// 25 MB/s nine tenths. Two at a time; an emulated link keeps to its formula.
bool Engine::Driver::lets_next_begin(std::uint64_t id, const Slot& next) {
  const Slot& slot = slot_of(id);
  const auto over_mpi = [](const Slot& s) {
    return s.group->transport == Transport::mpi && s.group->all.size() > 1 && s.request.num_elements > 0;
  };
  if (slot.machine == nullptr || !over_mpi(slot) || !over_mpi(next) || !is_done(slot.previous)) {
    return false;
  }
  const auto touched = [](const Slot& s) { return footprint(s.request, s.group->all.size(), s.group->all.index); };
  return slot.machine->all_posted() && !primitive_of(slot.request, *slot.group, slot.channel, slot.next_primitive) &&
         independent(touched(slot), touched(next));
}

/// False: there is none left.
bool Engine::Driver::begin_next_primitive(Slot& slot) {
  const auto primitive = primitive_of(slot.request, *slot.group, slot.channel, slot.next_primitive);
  if (!primitive) {
    return false;
  }
  ++slot.next_primitive;
  slot.machine = take_machine(*primitive);
  slot.machine->start(*primitive);
  return true;
}

/// Nothing of it is left to do. Its time on the stream begins when that of the one before has ended.
void Engine::Driver::finish(Slot& slot, std::int64_t now) {
  const auto stream = static_cast<std::size_t>(slot.request.stream);
  if (stream >= last_end_ns_.size()) {
    last_end_ns_.resize(stream + 1, 0);
  }
  slot.times.begin_ns = std::max(slot.times.begin_ns, last_end_ns_[stream]);
  slot.times.end_ns = last_end_ns_[stream] = now;
  slot.done_id.store(slot.id.load(std::memory_order_relaxed), std::memory_order_release);
}

/// Move one operation. @return whether anything happened; the operation may be done afterwards.
bool Engine::Driver::drive(Slot& slot, std::int64_t now) {
  if (slot.times.begin_ns == 0) {
    if (!may_begin(slot)) {
      return false;
    }
    now = now_ns();  // not the round's time: what it waited for may have ended since
    slot.times.begin_ns = now;
    const Request& r = slot.request;
    // Who has nothing in an exchange of pieces may still have to take part in it.
    const std::int64_t most_elements = r.pieces != nullptr ? r.pieces->longest : r.num_elements;
    if (slot.group->all.size() == 1 || most_elements == 0) {  // nothing travels
      if (r.num_elements > 0 && r.input != r.output) {
        std::memcpy(r.output, r.input, static_cast<std::size_t>(r.num_elements * size_of(r.dtype)));
      }
      finish(slot, now_ns());
      return true;
    }
    begin_next_primitive(slot);
  }
  if (slot.machine == nullptr) {  // all is here, only the one before on its stream was not done
    if (!is_done(slot.previous)) {
      return false;
    }
    finish(slot, now_ns());
    return true;
  }
  const Progress progress = slot.machine->advance(now);
  if (progress == Progress::waiting) {
    wake_ns_ = std::min(wake_ns_, slot.machine->wake_ns(now));
    return false;
  }
  if (progress == Progress::finished) {
    slot.times.bytes_sent += slot.machine->bytes_sent();
    idle_machines_[static_cast<std::size_t>(slot.machine->kind)].push_back(slot.machine);
    slot.machine = nullptr;
    if (!begin_next_primitive(slot) && is_done(slot.previous)) {
      finish(slot, now_ns());
    }
  }
  return true;
}

bool Engine::Driver::drive_once() {
  const std::uint64_t last_posted = last_posted_.load(std::memory_order_acquire);
  while (last_taken_ < last_posted) {
    active_.push_back(&slot_of(++last_taken_));
  }
  const std::int64_t now = now_ns();
  wake_ns_ = kNever;
  bool worked = false;
  std::size_t kept = 0;
  for (Slot* slot : active_) {
    worked = drive(*slot, now) || worked;
    if (slot->done_id.load(std::memory_order_relaxed) != slot->id.load(std::memory_order_relaxed)) {
      active_[kept++] = slot;
    }
  }
  active_.resize(kept);
  if (worked) {
    last_work_ns_ = now;
  }
  if (now >= next_tick_ns_) {
    next_tick_ns_ = now + kTickNs;
    tick(now);
  }
  return worked;
}

/// Whether to look again rather than sleep: nothing has happened for less than @p limit_ns.
bool Engine::Driver::spin(std::int64_t limit_ns) {
  if (limit_ns == 0 || now_ns() - last_work_ns_ > limit_ns) {
    return false;
  }
  __builtin_ia32_pause();
  return true;
}

void Engine::Driver::sleep(std::uint32_t ticket) { doorbell_.sleep(ticket, std::min(wake_ns_, next_tick_ns_)); }

void Engine::Driver::run_thread() {
  prefer_short_waits();
  try {
    while (!stop_.load(std::memory_order_acquire)) {
      rank_drives_.wait(true, std::memory_order_acquire);
      bool worked = false;
      {
        const std::lock_guard lock(driver_mutex_);
        if (failed_.load()) {
          return;
        }
        worked = drive_once() || (!active_.empty() && spin(thread_spin_ns_));
      }
      if (worked || rank_drives_.load(std::memory_order_acquire)) {
        continue;
      }
      const std::uint32_t ring = doorbell_.prepare();
      std::int64_t until = 0;
      {
        const std::lock_guard lock(driver_mutex_);
        worked = !failed_.load() && drive_once();
        until = std::min(wake_ns_, next_tick_ns_);
      }
      if (worked || stop_.load(std::memory_order_acquire)) {
        doorbell_.cancel();
      } else {
        doorbell_.sleep(ring, until);
      }
    }
  } catch (...) {
    const std::lock_guard lock(driver_mutex_);
    failure_ = std::current_exception();
    failed_.store(true, std::memory_order_release);
  }
}

}  // namespace strata::comm
