#include "planners/operators/depth_first.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "planners/search/exact_choices.hpp"

namespace strata {
namespace {

class DepthFirst {
 public:
  DepthFirst(const ChoiceProblem& problem, std::int64_t samples, std::int64_t max_nodes)
      : problem_(problem), samples_(samples), nodes_left_(max_nodes) {
    for (std::size_t c = 0; c < problem.classes.size(); ++c) {
      operators_.insert(operators_.end(), static_cast<std::size_t>(problem.classes[c].count), c);
      counts_.emplace_back(problem.classes[c].choices.size(), 0);
    }
    rest_.resize(operators_.size() + 1);
    for (std::size_t i = operators_.size(); i-- > 0;) {
      const std::vector<Choice>& choices = problem.classes[operators_[i]].choices;
      rest_[i].resident_bytes =
          rest_[i + 1].resident_bytes + std::ranges::min(choices, {}, &Choice::resident_bytes).resident_bytes;
      rest_[i].seconds = rest_[i + 1].seconds + std::ranges::min(choices, {}, &Choice::seconds).seconds;
    }
  }

  void run() { visit(0, 0, 0, 0.0); }
  bool finished() const { return nodes_left_ >= 0; }
  bool found() const { return least_seconds_ != std::numeric_limits<double>::infinity(); }
  const Counts& best() const { return best_; }

 private:
  void visit(std::size_t depth, std::int64_t resident, std::int64_t workspace, double seconds) {
    if (--nodes_left_ < 0) return;
    const Choice& rest = rest_[depth];
    if (seconds + rest.seconds >= least_seconds_) return;
    const std::int64_t least_peak = problem_.peak_bytes(resident + rest.resident_bytes, workspace, samples_);
    if (least_peak > problem_.capacity_bytes) return;
    if (depth == operators_.size()) {
      least_seconds_ = seconds;
      best_ = counts_;
      return;
    }
    const std::size_t c = operators_[depth];
    const std::vector<Choice>& choices = problem_.classes[c].choices;
    for (std::size_t k = 0; k < choices.size() && nodes_left_ >= 0; ++k) {
      ++counts_[c][k];
      visit(depth + 1, resident + choices[k].resident_bytes, std::max(workspace, choices[k].workspace_bytes),
            seconds + choices[k].seconds);
      --counts_[c][k];
    }
  }

  const ChoiceProblem& problem_;
  std::int64_t samples_;
  std::int64_t nodes_left_;
  std::vector<std::size_t> operators_;  ///< class of each
  std::vector<Choice> rest_;            ///< by depth: the least that operators from there on take, one by one
  Counts counts_, best_;
  double least_seconds_ = std::numeric_limits<double>::infinity();
};

}  // namespace

DepthFirstAnswer search_depth_first(const ChoiceProblem& problem, std::span<const std::int64_t> samples,
                                    std::int64_t max_nodes) {
  DepthFirstAnswer result;
  for (const std::int64_t b : samples) {
    DepthFirst search(problem, b, max_nodes);
    search.run();
    result.finished = result.finished && search.finished();
    if (!search.found()) break;
    BatchAnswer answer = evaluated(problem, search.best(), b);
    if (!search.finished()) {
      answer.gap = std::max(0.0, (answer.seconds - lower_bound_seconds(problem, b)) / answer.seconds);
    }
    result.answers.push_back(std::move(answer));
  }
  return result;
}

}  // namespace strata
