#include "planners/states/factor_search.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace strata {
namespace {

/// A candidate, and how much of it is known.
struct Candidate {
  ShardingChoice choice;
  std::int64_t state_bytes = 0;
  std::optional<ProgramPeak> least{};  ///< of a few blocks; or of the whole, where that is refused
  double seconds() const { return choice.seconds.total(); }
};

class Search {
 public:
  Search(std::span<const StateFactors> states, const StateCommunication& communication, const StateBytes& bytes,
         std::int64_t capacity_bytes, const ProgramAccount& account)
      : capacity_(capacity_bytes), account_(account) {
    for (const StateFactors& state : states) {
      const std::int64_t held = bytes.least(state);
      candidates_.push_back({{state, communication.seconds(state), held}, held});
    }
    std::ranges::stable_sort(candidates_, {}, &Candidate::seconds);
  }

  ShardingAnswer run() {
    for (auto c = candidates_.begin(); c != candidates_.end(); ++c) {
      if (c == candidates_.begin() || c->seconds() != (c - 1)->seconds()) sort_equals(c);
      if (answer_.best) {
        if (!leaves_room(*c)) continue;
        answer_.runner_up = c->choice;
        break;
      }
      if (fits(*c)) {
        answer_.best = c->choice;
      } else if (!answer_.blocked && !is_refused(*c)) {
        ask_least(*c);
        answer_.blocked = c->choice;
      }
    }
    if (!answer_.best) find_smallest();
    return std::move(answer_);
  }

 private:
  bool has_room(std::int64_t bytes) const { return capacity_ == 0 || bytes <= capacity_; }

  void ask_least(Candidate& candidate) {
    if (candidate.least) return;
    candidate.least = account_.least(candidate.choice.state);
    candidate.choice.peak_bytes = std::max(candidate.choice.peak_bytes, candidate.least->bytes);
  }

  /// From @p first on, those that take as long.
  void sort_equals(std::vector<Candidate>::iterator first) {
    const auto end =
        std::find_if(first, candidates_.end(), [&](const Candidate& c) { return c.seconds() != first->seconds(); });
    if (end - first == 1) return;
    for (auto c = first; c != end; ++c) {
      if (has_room(c->choice.peak_bytes)) ask_least(*c);
    }
    std::stable_sort(first, end,
                     [](const Candidate& a, const Candidate& b) { return a.choice.peak_bytes < b.choice.peak_bytes; });
  }

  /// It is not certain that no Program of it fits.
  bool leaves_room(Candidate& candidate) {
    if (capacity_ == 0) return true;
    if (!has_room(candidate.choice.peak_bytes)) return false;
    ask_least(candidate);
    return refused(*candidate.least) ? false : has_room(candidate.choice.peak_bytes);
  }

  bool fits(Candidate& candidate) {
    if (!leaves_room(candidate)) return false;
    const ProgramPeak whole = account_.whole(candidate.choice.state);
    if (refused(whole)) {
      candidate.least = whole;
      return false;
    }
    candidate.choice.peak_bytes = whole.bytes;
    return has_room(whole.bytes);
  }

  bool refused(const ProgramPeak& peak) {
    if (!peak.refusal.empty() && answer_.refusal.empty()) answer_.refusal = peak.refusal;
    return !peak.refusal.empty();
  }

  static bool is_refused(const Candidate& candidate) { return candidate.least && !candidate.least->refusal.empty(); }

  /// Where states need equally much, the Program of a few blocks tells.
  void find_smallest() {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Candidate& c : candidates_) {
      if (!is_refused(c)) least = std::min(least, c.state_bytes);
    }
    for (Candidate& c : candidates_) {
      if (is_refused(c) || c.state_bytes != least) continue;
      ask_least(c);
      if (!answer_.smallest || c.choice.peak_bytes < answer_.smallest->peak_bytes) answer_.smallest = c.choice;
    }
    if (!answer_.smallest) return;
    // A Program of few blocks may say too much where blocks differ or tensors are dealt whole.
    const ProgramPeak whole = account_.whole(answer_.smallest->state);
    if (refused(whole)) return;
    answer_.smallest->peak_bytes = whole.bytes;
    if (has_room(whole.bytes)) answer_.best = std::exchange(answer_.smallest, std::nullopt);
  }

  std::int64_t capacity_;
  const ProgramAccount& account_;
  std::vector<Candidate> candidates_;
  ShardingAnswer answer_;
};

}  // namespace

ShardingAnswer search_sharding(std::span<const StateFactors> candidates, const StateCommunication& communication,
                               const StateBytes& states, std::int64_t capacity_bytes, const ProgramAccount& account) {
  return Search(candidates, communication, states, capacity_bytes, account).run();
}

}  // namespace strata
