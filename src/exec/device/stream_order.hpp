#pragma once

/// @file
/// What must be waited for before an instruction of a Program is handed to a device: decided once for a section,
/// without a device, so that it can be tested without one.
///
/// Each stream of the Program is an in-order stream of the device. Where the device carries out collectives itself,
/// they are work on those streams like kernels, and those of several ranks at once follow each other in the order of
/// the Program, which all members share, whatever their streams: two that ran side by side could each hold a part of
/// the GPUs and wait for the rest. Messages are left out: two ranks that send to each other are in no common order.
/// Otherwise collectives are posted to the host's communication engine, which
/// reads and writes the arena: the host then waits for the kernels that a collective follows, and for the collectives
/// that a kernel follows, before it issues either.

#include <vector>

#include "ir/program/program.hpp"

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

/// @throws Unsupported naming a wait across steps: every step ends before the next begins.
std::vector<IssueOrder> stream_order(const std::vector<Instruction>& section, int num_streams, CollectivesOn where);

}  // namespace strata
