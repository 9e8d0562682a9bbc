#include "planners/states/search.hpp"

#include <algorithm>

namespace strata {
namespace {

/// Candidates by their times; peaks are found out as far as the search comes, since most candidates are never reached.
class ByTime {
 public:
  ByTime(std::span<const StateFactors> candidates, const StateCommunication& communication, const StateMemory& memory)
      : memory_(memory) {
    for (const StateFactors& state : candidates) choices_.push_back({state, communication.seconds(state)});
    std::ranges::stable_sort(choices_, {}, seconds);
  }
  std::size_t size() const { return choices_.size(); }
  ShardingChoice& at(std::size_t i) {
    if (i >= num_known_) {
      const auto begin = choices_.begin() + static_cast<std::ptrdiff_t>(i);
      const auto end =
          std::find_if(begin, choices_.end(), [&](const ShardingChoice& c) { return seconds(c) != seconds(*begin); });
      for (auto c = begin; c != end; ++c) {
        const MemoryAccount account = memory_.account(c->state);
        c->peak_bytes = account.total();
        c->least_bytes = account.least;
      }
      std::ranges::stable_sort(begin, end, {}, &ShardingChoice::peak_bytes);
      num_known_ = static_cast<std::size_t>(end - choices_.begin());
    }
    return choices_[i];
  }

 private:
  static double seconds(const ShardingChoice& choice) { return choice.seconds.total(); }
  const StateMemory& memory_;
  std::vector<ShardingChoice> choices_;
  std::size_t num_known_ = 0;
};

}  // namespace

ShardingAnswer search_sharding(std::span<const StateFactors> candidates, const StateCommunication& communication,
                               const StateMemory& memory, std::int64_t capacity_bytes, const ProgramAccount& account) {
  ByTime all(candidates, communication, memory);
  const auto fits = [&](std::int64_t bytes) { return capacity_bytes == 0 || bytes <= capacity_bytes; };
  ShardingAnswer answer;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ShardingChoice choice = all.at(i);
    if (answer.best) {
      if (!fits(choice.peak_bytes)) continue;
      answer.runner_up = choice;
      break;
    }
    // No Program needs less than what is certain.
    const bool asks = account && fits(choice.least_bytes);
    if (asks) {
      const ProgramPeak peak = account(choice.state);
      if (!peak.refusal.empty()) {
        if (answer.refusal.empty()) answer.refusal = peak.refusal;
        continue;
      }
      choice.peak_bytes = peak.bytes;
    }
    if ((asks || !account) && fits(choice.peak_bytes)) {
      answer.best = choice;
    } else {
      if (!answer.blocked) answer.blocked = choice;
      if (!answer.smallest || choice.peak_bytes < answer.smallest->peak_bytes) answer.smallest = choice;
    }
  }
  if (answer.best) answer.smallest.reset();
  return answer;
}

}  // namespace strata
