#include "planners/sharding/search.hpp"

#include <algorithm>
#include <tuple>

namespace strata {

ShardingAnswer search_sharding(std::span<const StateFactors> candidates, const StateCommunication& communication,
                               const StateMemory& memory, std::int64_t capacity_bytes, const PeakBytes& peak_bytes) {
  struct Candidate {
    ShardingChoice choice;
    MemoryAccount account;
  };
  std::vector<Candidate> all;
  for (const StateFactors& state : candidates) {
    const MemoryAccount account = memory.account(state);
    all.push_back({{state, communication.seconds(state), account.total()}, account});
  }
  std::ranges::stable_sort(all, {},
                           [](const Candidate& c) { return std::tuple(c.choice.seconds.total(), c.account.total()); });

  ShardingAnswer answer;
  for (Candidate& candidate : all) {
    ShardingChoice& choice = candidate.choice;
    const bool states_fit =
        capacity_bytes == 0 || candidate.account.parameters + candidate.account.optimizer <= capacity_bytes;
    if (states_fit) choice.peak_bytes = peak_bytes(choice.state, candidate.account);
    const bool fits = capacity_bytes == 0 || choice.peak_bytes <= capacity_bytes;
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
