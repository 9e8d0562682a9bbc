#pragma once

/// @file
/// What must be waited for before an instruction of a Program is handed to a device: decided without a
/// device, so that it can be tested without one; once for a section that is repeated alone, and as instructions come
/// where repetitions overlap, since some of them may be left out.
///
/// Each stream of the Program is an in-order stream of the device. Where the device carries out collectives itself,
/// they are work on those streams like kernels, and those of several ranks at once follow each other in the order of
/// the Program, which all members share, whatever their streams: two that ran side by side could each hold a part of
/// the GPUs and wait for the rest. Messages are left out: two ranks that send to each other are in no common order.
/// Otherwise collectives are posted to the host's communication engine, which
/// reads and writes the arena: the host then waits for the kernels that a collective follows, and for the collectives
/// that a kernel follows, before it issues either.

#include <cstdint>
#include <span>
#include <vector>

#include "ir/program/program.hpp"
#include "ir/program/repetition.hpp"

namespace strata {

enum class CollectivesOn : std::uint8_t { device, host };

/// Instructions are numbers within the section, ascending.
struct IssueOrder {
  std::vector<int> device_waits;  ///< the instruction's stream waits for the events of these
  std::vector<int> host_kernels;  ///< the host waits for the events of these kernels
  std::vector<int>
      host_collectives;  ///< the host waits for these collectives (kernel), or passes their tickets on (collective)
  bool records = false;  ///< an event is needed after it: another stream or the host waits for it
};

/// What an instance must wait for that is handed over next. Each ascending, by repetition and instruction.
struct IssueWaits {
  std::vector<Instance> device_waits;  ///< as in IssueOrder
  std::vector<Instance> host_kernels;
  std::vector<Instance> host_collectives;
};

/// Decides for instances of a section's instructions in the order in which they are handed over. One that is left out
/// breaks no chain: what follows it on its stream follows what came before it.
class StreamOrder {
 public:
  /// @param section outlives this.
  StreamOrder(const std::vector<Instruction>& section, int num_streams, CollectivesOn where);
  /// @param waits instances that were handed over before, on whatever stream.
  IssueWaits next(Instance instance, std::span<const Instance> waits);

 private:
  const Instruction& instruction(Instance instance) const {
    return section_[static_cast<std::size_t>(instance.instruction)];
  }
  bool on_host(Instance instance) const {
    return where_ == CollectivesOn::host && instruction(instance).is_collective();
  }

  const std::vector<Instruction>& section_;
  CollectivesOn where_;
  std::vector<Instance> last_;  ///< by stream; instruction -1: none
  Instance last_on_device_;     ///< collective that is no message
};

/// Of one repetition in which every instruction runs; what earlier ones are waited for is not part of it.
std::vector<IssueOrder> stream_order(const std::vector<Instruction>& section, int num_streams, CollectivesOn where);

}  // namespace strata
