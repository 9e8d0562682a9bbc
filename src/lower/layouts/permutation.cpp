#include "lower/layouts/permutation.hpp"

#include "base/error.hpp"

namespace strata {

bool Permutation::is_identity() const {
  if (order.size() != sizes.size()) return false;
  // Dims of one element move freely.
  int before = -1;
  for (const int d : order) {
    if (sizes[static_cast<std::size_t>(d)] == 1) continue;
    if (d < before) return false;
    before = d;
  }
  return true;
}

Permutation Permutation::inverse() const {
  STRATA_INVARIANT(order.size() == sizes.size(), "what is left out cannot be put back");
  Permutation result{.sizes = {}, .order = std::vector<int>(order.size())};
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.sizes.push_back(sizes[static_cast<std::size_t>(order[i])]);
    result.order[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  return result;
}

StridedBlock Permutation::block() const {
  std::vector<std::int64_t> distance(sizes.size());
  std::int64_t elements = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    distance[d] = elements;
    elements *= sizes[d];
  }
  // The innermost first; neighbours are joined.
  StridedBlock block{.first = first, .run = 1};
  for (std::size_t i = order.size(); i-- > 0;) {
    const auto d = static_cast<std::size_t>(order[i]);
    if (sizes[d] == 1) continue;
    if (block.levels.empty() && distance[d] == block.run) {
      block.run *= sizes[d];
    } else if (!block.levels.empty() && distance[d] == block.levels.back().count * block.levels.back().stride) {
      block.levels.back().count *= sizes[d];
    } else {
      block.levels.push_back({sizes[d], distance[d]});
    }
  }
  return block;
}

}  // namespace strata
