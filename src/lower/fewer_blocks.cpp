#include "lower/fewer_blocks.hpp"

#include <algorithm>
#include <numeric>

namespace strata {

FewBlocks::FewBlocks(const Plan& plan, const ModelGraph& graph, int kept, int added)
    : plan_(plan), graph_(graph), added_(added) {
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  runs_ = runs_of_equal_blocks(graph, [&](int op, int other) {
    return decisions[static_cast<std::size_t>(op)] == decisions[static_cast<std::size_t>(other)];
  });
  for (const BlockRun& run : runs_) kept_.push_back(std::min(run.count, kept));
}

int FewBlocks::num_blocks_asked() const {
  const int few = std::accumulate(kept_.begin(), kept_.end(), 0);
  int asked = few;
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    if (num_added(r) > 0) asked += few + num_added(r);
  }
  return asked;
}

}  // namespace strata
