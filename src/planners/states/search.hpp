#pragma once

/// @file
/// The exact search over factors: every candidate, cheapest first, until one fits. There are 121 on 1024 ranks, so
/// nothing is pruned that would need an argument. Whether one fits is the Program's own account where there is one.
/// Lowering takes long, so it is asked only where what every Program of these factors needs would fit, which is the
/// first that fits and the few before it of which the closed form is not certain; the runner-up is the closed form's.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planners/states/communication.hpp"
#include "planners/states/memory.hpp"

namespace strata {

struct ShardingChoice {
  StateFactors state;
  CommunicationSeconds seconds;
  std::int64_t peak_bytes = 0;   ///< of the Program where it has been asked, else by the closed form
  std::int64_t least_bytes = 0;  ///< that every Program of these factors needs
  bool operator==(const ShardingChoice& other) const { return state == other.state; }
};

struct ShardingAnswer {
  std::optional<ShardingChoice> best;       ///< nothing: none fits
  std::optional<ShardingChoice> runner_up;  ///< the cheapest of the others that fit
  std::optional<ShardingChoice> blocked;    ///< the cheapest that does not fit, where it is cheaper than best
  std::optional<ShardingChoice> smallest;   ///< where none fits: the one that needs least
  std::string refusal;                      ///< of the cheapest that lowering refuses; empty: it refused none
};

/// Peak bytes of the Programs of these factors, or why they are refused.
struct ProgramPeak {
  std::int64_t bytes = 0;
  std::string refusal{};
};
using ProgramAccount = std::function<ProgramPeak(const StateFactors&)>;

/// Of equal times the one that needs less, then the one that comes first.
/// @param capacity_bytes 0: no limit. @param account null: @p memory's closed form says what fits.
ShardingAnswer search_sharding(std::span<const StateFactors> candidates, const StateCommunication& communication,
                               const StateMemory& memory, std::int64_t capacity_bytes, const ProgramAccount& account);

}  // namespace strata
