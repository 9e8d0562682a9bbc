#pragma once

/// @file
/// NCCL's communicators of a Program: made by all ranks together, watched while their operations are under way, and
/// aborted when one of them fails, so that no kernel waits for ever for a rank that is gone.

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "exec/cuda/event.hpp"
#include "exec/device/communicator_list.hpp"

namespace strata::cuda {

/// What collectives on the device need beside the Program.
struct NcclOptions {
  const comm::World* world = nullptr;  ///< whose control plane carries the identifiers; null: collectives on the host
  double watchdog_seconds = 300.0;
  /// Called once, before the CommunicationError that ends this rank's use of its communicators.
  std::function<void(const comm::WatchdogReport&)> on_watchdog{};
};

/// A collective that has been queued.
struct InFlight {
  std::function<bool()> is_done;
  int communicator = 0;
  const std::string* label = nullptr;
};

class Communicators {
 public:
  /// Collective over the world, on each rank's current device. @param uses what this rank's Program needs; see
  /// communicators_of().
  /// @throws CommunicationError; Unsupported where two members share a GPU, which this NCCL refuses.
  Communicators(const std::vector<CommunicatorUse>& uses, const NcclOptions& options);
  /// After a failure aborts, otherwise waits for the other members to come here too.
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// Of those this rank is a member of. @throws InternalError where it was not asked for.
  int number(const CommunicatorKey& key) const;
  ncclComm_t get(int number) const { return members_[static_cast<std::size_t>(number)].handle; }
  const std::vector<int>& ranks(int number) const { return members_[static_cast<std::size_t>(number)].key.ranks; }
  /// Position of this rank in the communicator.
  int index(int number) const { return members_[static_cast<std::size_t>(number)].index; }

  /// Lets NCCL use the arena itself in place of buffers of its own, for the communicators on which all members'
  /// operands lie at equal addresses of their arenas, which NVLink SHARP asks for. The arena is from ncclMemAlloc and
  /// outlives this object.
  void register_arena(std::byte* data, std::int64_t size_bytes);

  /// Until all that is queued on @p streams is done. @p collectives: in the order in which they were queued.
  /// @throws CommunicationError naming the first one that is not done, when NCCL reports an error, a rank of this node
  /// has ended, or the watchdog's time has passed; abort() ends what is under way then.
  void wait(std::span<const std::unique_ptr<Stream>> streams, std::span<const InFlight> collectives);

  /// Likewise until @p event is complete.
  void wait(const Event& event, std::span<const InFlight> collectives);
  /// Likewise until the last of @p collectives is done.
  void wait_for_last(std::span<const InFlight> collectives);

  /// Ends all that is under way, on all communicators, without the other ranks. Nothing may follow. Graphs that hold
  /// collectives are destroyed before: NCCL waits for them.
  void abort() noexcept;

  /// What a call for @p label said. @throws CommunicationError; see wait().
  void check_call(ncclResult_t result, const std::string& label, int communicator);

 private:
  struct Member {
    CommunicatorKey key;
    int index = 0;
    bool equal_addresses = false;
    ncclComm_t handle = nullptr;
    void* registration = nullptr;
  };
  void create(const std::vector<AgreedCommunicator>& agreed);
  void connect_messages(std::byte* word);
  template <typename Condition>
  void wait_until(const Condition& condition, std::span<const InFlight> collectives);
  void check_health(std::span<const InFlight> collectives, std::int64_t waited_ns);
  [[noreturn]] void fail(const std::string& label, const std::string& reason);

  NcclOptions options_;
  std::vector<Member> members_;
  bool failed_ = false;
  bool aborted_ = false;
};

/// @throws CommunicationError with NCCL's own text and @p what was tried.
void check(ncclResult_t result, const char* what);
/// "2.28.9".
std::string nccl_version();

}  // namespace strata::cuda
