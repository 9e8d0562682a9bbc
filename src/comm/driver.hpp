#pragma once

/// @file
/// Inside the engine: posted operations, whose turn it is, and who moves them. The poster fills a slot and publishes
/// its number; everything else belongs to whoever holds driver_mutex_ (the communication thread, or a rank that waits).
/// Internal to src/comm.

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/engine.hpp"
#include "comm/group_maker.hpp"
#include "comm/mpi/mpi_exchange.hpp"
#include "comm/peer_queries.hpp"
#include "comm/primitive.hpp"

namespace strata::comm {

/// A duplicate of MPI_COMM_WORLD that this object frees.
class OwnedCommunicator {
 public:
  explicit OwnedCommunicator(const World& world);
  ~OwnedCommunicator();
  OwnedCommunicator(const OwnedCommunicator&) = delete;
  OwnedCommunicator& operator=(const OwnedCommunicator&) = delete;
  MPI_Comm handle() const { return handle_; }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

class Engine::Driver {
 public:
  Driver(const World& world, const EngineOptions& options);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  int create_group(const std::vector<int>& world_ranks);
  Ticket post(std::span<const Request> requests);
  bool done(Ticket ticket);
  void wait(Ticket ticket);
  void wait_all();
  void progress();
  CompletedTimes times(Ticket ticket) const;
  const Group& group(int number) const;
  bool has_thread() const { return thread_.joinable(); }
  std::int64_t memory_bytes() const;

 private:
  struct Slot {
    std::atomic<std::uint64_t> id{0};       ///< ticket that has the slot now
    std::atomic<std::uint64_t> done_id{0};  ///< equal to id: done
    Request request;
    Group* group = nullptr;
    int channel = 0;
    std::int64_t order = 0;            ///< 1-based number of the operation in its group, or with its peer
    std::vector<std::uint64_t> after;  ///< ids that must be done; capacity is kept
    std::uint64_t previous = 0;        ///< the one before on its stream, or the last of those that were posted together
    int next_primitive = 0;
    /// Null: has not begun, or all of it is here and only the one before on its stream is not done.
    Machine* machine = nullptr;
    CompletedTimes times;
  };
  /// kMpiReduce: a chain that has scratch memory.
  enum MachineKind { kMpiExchange, kMpiChain, kMpiReduce, kSharedExchange, kSharedPair, kNumMachineKinds };

  Slot& slot_of(std::uint64_t id) { return slots_[id % slots_.size()]; }
  bool is_done(std::uint64_t id);
  bool is_done(Ticket ticket);
  void post_behind(const Request& request, Ticket previous);
  void validate(const Request& request, const Group& group) const;
  void order_in_group(Slot& slot);
  void rethrow_failure();

  // With driver_mutex_ held:
  bool drive_once();
  bool drive(Slot& slot, std::int64_t now);
  bool may_begin(Slot& slot);
  bool lets_next_begin(std::uint64_t id, const Slot& next);
  bool begin_next_primitive(Slot& slot);
  void finish(Slot& slot, std::int64_t now);
  void tick(std::int64_t now);
  void report(Slot& slot, std::int64_t now);
  bool spin(std::int64_t limit_ns);
  void sleep(std::uint32_t ticket);
  static MachineKind kind_of_machine(const Primitive& primitive);
  Machine* take_machine(const Primitive& primitive);

  void run_thread();
  std::int64_t answer(const PeerQuery& query);

  const World& world_;
  EngineOptions options_;
  OwnedCommunicator data_;
  OwnedCommunicator control_;
  GroupMaker maker_;
  OutgoingLinks emulated_links_;
  MpiMedium medium_;
  Doorbell& doorbell_;

  std::mutex groups_mutex_;  ///< groups_ itself; the poster uses it freely, an answer to a query may come in between
  std::vector<std::unique_ptr<Group>> groups_;
  std::unique_ptr<PeerQueries> queries_;

  // The poster's.
  std::vector<Ticket> last_on_stream_;
  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> last_posted_{0};

  // The driver's.
  std::mutex driver_mutex_;
  std::atomic<bool> rank_drives_{false};  ///< the rank's own thread wants the mutex
  std::uint64_t last_taken_ = 0;
  std::vector<Slot*> active_;              ///< in posting order
  std::vector<std::int64_t> last_end_ns_;  ///< by stream
  std::vector<std::vector<std::unique_ptr<Machine>>> machines_;
  std::vector<std::vector<Machine*>> idle_machines_;
  std::int64_t wake_ns_ = 0;
  std::int64_t last_work_ns_ = 0;
  std::int64_t wait_spin_ns_ = 0;
  std::int64_t thread_spin_ns_ = 0;
  std::int64_t next_tick_ns_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::atomic<std::int64_t> machine_bytes_{0};  ///< scratch of the machines made so far
  std::thread thread_;
};

}  // namespace strata::comm
