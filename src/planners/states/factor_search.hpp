#pragma once

/// @file
/// The exact search over factors: every candidate, cheapest first, until one fits. There are 121 on 1024 ranks, so
/// nothing is pruned that would need an argument. Whether one fits is its Programs' own account. Lowering takes long,
/// so three are asked one after the other, each only where the one before leaves room: what states alone need, the
/// Program of a few blocks, the whole Programs of the fullest ranks. The first is never more than the third and the
/// second hardly ever; the third decides.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planners/states/communication.hpp"
#include "planners/states/state_bytes.hpp"

namespace strata {

struct ShardingChoice {
  StateFactors state;
  CommunicationSeconds seconds;
  std::int64_t peak_bytes = 0;  ///< at least; of the answer and of what did not fit the last that was asked
};

struct ShardingAnswer {
  std::optional<ShardingChoice> best;       ///< nothing: none fits
  std::optional<ShardingChoice> runner_up;  ///< the cheapest of the others that fit by the Program of a few blocks
  std::optional<ShardingChoice> blocked;    ///< the cheapest that does not fit, where it is cheaper than best
  std::optional<ShardingChoice> smallest;   ///< where none fits: the one whose states need least
  std::string refusal;                      ///< of the cheapest that lowering refuses; empty: it refused none
};

/// Peak bytes of the Programs of these factors, or why they are refused.
struct ProgramPeak {
  std::int64_t bytes = 0;
  std::string refusal{};
};
struct ProgramAccount {
  std::function<ProgramPeak(const StateFactors&)> least;  ///< of a few blocks
  std::function<ProgramPeak(const StateFactors&)> whole;
};

/// Of equal times the one that needs less by its Program of a few blocks, then the one that comes first.
/// @param capacity_bytes 0: no limit, and nothing is asked but of candidates of equal times and of the answer.
ShardingAnswer search_sharding(std::span<const StateFactors> candidates, const StateCommunication& communication,
                               const StateBytes& states, std::int64_t capacity_bytes, const ProgramAccount& account);

}  // namespace strata
