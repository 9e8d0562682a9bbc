#pragma once

/// @file
/// The one communication engine. Operations are posted on in-order streams and progress concurrently while the rank
/// computes. The decision: one driver moves all operations of a rank, either a communication thread that sleeps unless
/// there is something to do, or the rank's own thread (polled between kernels); a rank that waits drives itself, so a
/// blocking collective costs no switch between threads.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/emulated/emulated_link.hpp"
#include "comm/request.hpp"

namespace strata::comm {

class World;

enum class ProgressMode : std::uint8_t { automatic, thread, polling };

/// An operation that did not finish in time. Ranks are world ranks.
struct WatchdogReport {
  std::string label;    ///< of the request
  std::string message;  ///< all of this as one line
  std::vector<int> group_ranks;
  std::vector<int> missing_ranks;  ///< have not posted the operation, or do not answer; empty: all have
  double waited_seconds = 0.0;
};

struct EngineOptions {
  /// "auto": shm for groups of one node, two_level for regular groups over several, otherwise mpi; "mpi" everywhere;
  /// "shm": refuses groups over several nodes; "two_level": as auto, but refuses irregular groups.
  std::string transport = "auto";
  ProgressMode progress = ProgressMode::automatic;
  std::optional<EmulatedLink> emulated_link;    ///< in front of the mpi transport, which is then used for every group
  std::optional<EmulatedNodes> emulated_nodes;  ///< with emulated_link, which is then that between nodes
  double watchdog_seconds = 300.0;
  /// Called once by the thread that drives, before the CommunicationError that ends this rank's use of the engine.
  std::function<void(const WatchdogReport&)> on_watchdog;
  int num_compute_threads = 1;  ///< of this rank
  int num_cores_on_node = 0;    ///< that the node's ranks share; 0: as many as this process may run on
  /// Operations whose tickets are remembered: at least those of one step whose times are read afterwards.
  int num_ticket_slots = 4096;
};

/// steady_clock nanoseconds. begin: the operation's turn had come on this rank (it may then have waited for others).
struct CompletedTimes {
  std::int64_t posted_ns = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t bytes_sent = 0;  ///< by this rank
};

/// Calls come from one thread. Every function but the constructor and create_group() is local and may throw
/// CommunicationError when communication has failed, a rank of this node has died, or the watchdog has fired; the
/// engine then stays failed and throws again.
///
/// Posting order: operations of one group are posted in the same order by all members, and operations of different
/// groups in an order that all ranks agree on where their members overlap; then no order of arrival can lock up.
class Engine {
 public:
  /// Collective over @p world, which outlives the engine. @throws UserError for an unknown transport or a negative
  /// link; Unsupported for an emulated link over several machines.
  Engine(const World& world, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Collective over @p world_ranks (distinct, this rank among them), called in the same order by all members.
  /// @return the group's number on this rank. @throws Unsupported if the transport cannot serve these ranks.
  int create_group(const std::vector<int>& world_ranks);

  /// Allocation-free in the steady state. Waits when all ticket slots are in flight.
  /// @throws Unsupported for a reduction of integers; InternalError for a malformed request.
  Ticket post(const Request& request);
  /// Several operations of one stream as one: none waits for another of them, as far as the group has channels, and
  /// what is posted on the stream afterwards waits for all. They have one ticket.
  Ticket post(std::span<const Request> requests);
  bool done(Ticket ticket);
  void wait(Ticket ticket);
  void wait_all();
  /// Without a communication thread: do some work (at most one segment an operation). With one: nothing.
  void progress();
  /// Of a done operation, until num_ticket_slots more have been posted.
  CompletedTimes times(Ticket ticket) const;

  /// "shm", "mpi", "two_level(shm,mpi)", "emulated_link(alpha=2e-05,beta=1e-09) over mpi", with
  /// nodes "emulated_link(alpha=2e-05,beta=1e-09; inside alpha=5e-06,beta=1e-10) over mpi"; "none" for one rank.
  std::string transport_name(int group) const;
  bool has_thread() const;
  /// Memory outside the caller's buffers: this rank's share of what was touched of shared segments, and workspaces.
  std::int64_t memory_bytes() const;

 private:
  class Driver;
  std::unique_ptr<Driver> driver_;
};

}  // namespace strata::comm
