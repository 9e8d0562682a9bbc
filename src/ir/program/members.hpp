#pragma once

/// @file
/// Who takes part in a collective or a message.

#include <cstddef>
#include <vector>

#include "ir/program/program.hpp"

namespace strata {

inline bool is_message(const Instruction& in) {
  return in.is_collective() && (in.collective == Collective::send || in.collective == Collective::recv);
}

/// World ranks, of a collective of @p program in group order, of a message sender and receiver.
inline std::vector<int> members_of(const Program& program, const Instruction& in) {
  const std::vector<int>& ranks = program.groups[static_cast<std::size_t>(in.group)].ranks;
  if (!is_message(in)) return ranks;
  const int peer = ranks[static_cast<std::size_t>(in.root)];
  return in.collective == Collective::send ? std::vector{program.rank, peer} : std::vector{peer, program.rank};
}

}  // namespace strata
