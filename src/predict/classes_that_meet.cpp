#include "predict/classes_that_meet.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "ir/program/members.hpp"

namespace strata::predict {
namespace {

/// Sets that are joined, each named by the least of its members.
class Joined {
 public:
  explicit Joined(std::size_t size) : joined_to_(size) { std::iota(joined_to_.begin(), joined_to_.end(), 0U); }

  std::size_t least_beside(std::size_t i) const {
    while (joined_to_[i] != i) i = joined_to_[i];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    a = least_beside(a);
    b = least_beside(b);
    joined_to_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> joined_to_;  ///< a lesser one of the same set, or itself
};

}  // namespace

std::vector<std::size_t> classes_that_meet(const LoweredJob& job, int ranks_per_node,
                                           std::span<const std::vector<const Instruction*>> instructions) {
  const std::size_t num_classes = job.programs.size();
  const auto node_of = [&](int rank) { return rank / ranks_per_node; };
  // Behind the classes stand the NICs of each node, once for each direction, as they carry both at the same time.
  const auto nics = [&](int rank, int direction) {
    return num_classes + static_cast<std::size_t>(2 * node_of(rank) + direction);
  };
  const std::size_t most_nodes = job.class_of_rank.size() / static_cast<std::size_t>(ranks_per_node) + 1;
  Joined sets(num_classes + 2 * most_nodes);
  for (std::size_t c = 0; c < num_classes; ++c) {
    const Program& program = job.programs[c];
    std::set<std::tuple<int, int, Collective>> seen;
    for (const Instruction* in : instructions[c]) {
      if (!in->is_collective() || !seen.emplace(in->group, in->root, in->collective).second) continue;
      bool is_in_node = true;
      for (const int member : members_of(program, *in)) {
        sets.join(c, static_cast<std::size_t>(job.class_of_rank[static_cast<std::size_t>(member)]));
        is_in_node = is_in_node && node_of(member) == node_of(program.rank);
      }
      if (is_in_node) continue;
      if (in->collective != Collective::recv) sets.join(c, nics(program.rank, 0));
      if (in->collective != Collective::send) sets.join(c, nics(program.rank, 1));
    }
  }
  std::vector<std::size_t> firsts(num_classes);
  for (std::size_t c = 0; c < num_classes; ++c) firsts[c] = sets.least_beside(c);
  return firsts;
}

}  // namespace strata::predict
