#include "planners/sharding/search.hpp"

#include <algorithm>
#include <tuple>

namespace strata {

ShardingAnswer search_sharding(std::span<const StateFactors> candidates, const StateCommunication& communication,
                               const StateMemory& memory, std::int64_t capacity_bytes, const ProgramAccount& account) {
  std::vector<ShardingChoice> all;
  for (const StateFactors& state : candidates) {
    all.push_back({state, communication.seconds(state), memory.account(state).total()});
  }
  std::ranges::stable_sort(all, {},
                           [](const ShardingChoice& c) { return std::tuple(c.seconds.total(), c.peak_bytes); });

  ShardingAnswer answer;
  for (ShardingChoice& choice : all) {
    const bool states_fit = capacity_bytes == 0 || memory.states(choice.state) <= capacity_bytes;
    if (account && states_fit) {
      const ProgramPeak peak = account(choice.state);
      if (!peak.refusal.empty()) {
        if (answer.refusal.empty()) answer.refusal = peak.refusal;
        continue;
      }
      choice.peak_bytes = peak.bytes;
    }
    const bool fits = states_fit && (capacity_bytes == 0 || choice.peak_bytes <= capacity_bytes);
    if (fits && answer.best) {
      answer.runner_up = choice;
      break;
    }
    if (fits) {
      answer.best = choice;
    } else if (!answer.best) {
      if (!answer.blocked) answer.blocked = choice;
      if (!answer.smallest || choice.peak_bytes < answer.smallest->peak_bytes) answer.smallest = choice;
    }
  }
  if (answer.best) answer.smallest.reset();
  return answer;
}

}  // namespace strata
