#include "planners/pipelines/stage_cuts.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

class StageCutSearch {
 public:
  explicit StageCutSearch(const StageChain& chain)
      : chain_(chain), pieces_(chain.num_pieces()), stages_(chain.num_stages()) {
    STRATA_INVARIANT(stages_ >= 1 && stages_ <= pieces_, "a chain is cut into at most as many stages as it has pieces");
    for (const double of_piece : chain.seconds) before_.push_back(before_.back() + of_piece);
    cuts_.resize(at(stages_) * at(pieces_));
    for (int begin = 0; begin < pieces_; ++begin) of(stages_ - 1, begin) = {{.slowest = seconds(begin, pieces_)}};
    for (int stage = stages_ - 1; stage-- > 0;) {
      for (int begin = stage; begin < pieces_; ++begin) of(stage, begin) = best_cuts(stage, begin);
    }
  }

  std::vector<int> begins() {
    // What all stages take together is the same for every cut.
    const auto worth = [&](const Cut& cut) { return cut.messages + (chain_.micro_batches - 1) * cut.slowest; };
    const Cut* cut = &*std::ranges::min_element(of(0, 0), {}, worth);
    std::vector<int> begins = {0};
    for (int stage = 1; stage < stages_; ++stage) {
      begins.push_back(cut->next_begin);
      cut = &of(stage, cut->next_begin)[at(cut->next_cut)];
    }
    return begins;
  }

 private:
  /// Of the stages from one on, which begins with a given piece.
  struct Cut {
    double messages = 0.0;  ///< to the stages behind it
    double slowest = 0.0;
    int next_begin = 0, next_cut = 0;  ///< of the stage behind it, and of its cuts
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  std::vector<Cut>& of(int stage, int begin) { return cuts_[at(stage) * at(pieces_) + at(begin)]; }
  double seconds(int begin, int end) const { return before_[at(end)] - before_[at(begin)]; }

  /// Messages rise, and the slowest stage gets faster.
  std::vector<Cut> best_cuts(int stage, int begin) {
    std::vector<Cut> all;
    for (int end = begin + 1; end < pieces_; ++end) {
      const std::vector<Cut>& behind = of(stage + 1, end);
      for (std::size_t c = 0; c < behind.size(); ++c) {
        all.push_back({.messages = behind[c].messages + chain_.messages[at(stage + 1)][at(end)],
                       .slowest = std::max(behind[c].slowest, seconds(begin, end)),
                       .next_begin = end,
                       .next_cut = static_cast<int>(c)});
      }
    }
    std::ranges::stable_sort(all, {}, [](const Cut& cut) { return std::tuple(cut.messages, cut.slowest); });
    std::vector<Cut> best;
    for (const Cut& cut : all) {
      if (best.empty() || cut.slowest < best.back().slowest) best.push_back(cut);
    }
    return best;
  }

  const StageChain& chain_;
  int pieces_, stages_;
  std::vector<double> before_ = {0.0};  ///< by piece: what those before it take
  std::vector<std::vector<Cut>> cuts_;  ///< by stage, by piece that it begins with
};

}  // namespace

double step_seconds(const StageChain& chain, std::span<const int> begins) {
  double sum = 0.0, slowest = 0.0;
  for (std::size_t s = 0; s < begins.size(); ++s) {
    const auto begin = static_cast<std::size_t>(begins[s]);
    const std::size_t end = s + 1 < begins.size() ? static_cast<std::size_t>(begins[s + 1]) : chain.seconds.size();
    const std::span of_stage = std::span(chain.seconds).subspan(begin, end - begin);
    const double stage = std::accumulate(of_stage.begin(), of_stage.end(), 0.0);
    sum += stage + (s > 0 ? chain.messages[s][begin] : 0.0);
    slowest = std::max(slowest, stage);
  }
  return sum + (chain.micro_batches - 1) * slowest;
}

std::vector<int> fastest_cut(const StageChain& chain) { return StageCutSearch(chain).begins(); }

}  // namespace strata
