#include "planners/oases/chain_seconds.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace strata {
namespace {

const ChainChoice& choice_of(const Chain& chain, std::size_t node, int choice) {
  return chain.nodes[node][static_cast<std::size_t>(choice)];
}

/// All sub-batches of a node but the first compute beside its sums.
double beside_own_sums(const Chain& chain, const PassSeconds& node) {
  return (chain.sub_batches - 1) * std::max(node.compute, node.communication);
}

/// One pass from a node to the one that it reaches next; gathers of @p gather seconds a sub-batch stand between them.
double between(const Chain& chain, const PassSeconds& from, const PassSeconds& to, double gather) {
  if (chain.sub_batches == 1) return from.communication + gather + to.compute;
  const double before = beside_own_sums(chain, from);
  if (gather == 0.0) return before + std::max(to.compute, from.communication);
  // Whoever gathers has waited for the last of the sums.
  if (chain.reshard == Reshard::blocking) {
    return before + from.communication + chain.sub_batches * gather + to.compute;
  }
  return before + from.communication + (chain.sub_batches - 1) * gather + std::max(to.compute, gather);
}

double behind_all(const Chain& chain, const PassSeconds& last) {
  return beside_own_sums(chain, last) + last.communication;
}

}  // namespace

double first_seconds(const Chain& chain, int choice) {
  const ChainChoice& first = choice_of(chain, 0, choice);
  return first.forward.compute + behind_all(chain, first.backward);
}

double last_seconds(const Chain& chain, int choice) {
  const ChainChoice& last = choice_of(chain, chain.size() - 1, choice);
  return last.backward.compute + behind_all(chain, last.forward) + last.step_seconds;
}

double pair_seconds(const Chain& chain, std::size_t node, int choice, int next) {
  const ChainChoice &earlier = choice_of(chain, node, choice), &later = choice_of(chain, node + 1, next);
  const GatherSeconds& gather = chain.gather(node, choice, next);
  return between(chain, earlier.forward, later.forward, gather.forward) +
         between(chain, later.backward, earlier.backward, gather.backward) + earlier.step_seconds;
}

double forward_seconds(const Chain& chain, std::span<const int> choices) {
  const auto of = [&](std::size_t node) -> const PassSeconds& { return choice_of(chain, node, choices[node]).forward; };
  double sum = of(0).compute;
  for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
    sum += between(chain, of(i), of(i + 1), chain.gather(i, choices[i], choices[i + 1]).forward);
  }
  return sum + behind_all(chain, of(chain.size() - 1));
}

double chain_seconds(const Chain& chain, std::span<const int> choices) {
  double sum = first_seconds(chain, choices.front());
  for (std::size_t i = 0; i + 1 < chain.size(); ++i) sum += pair_seconds(chain, i, choices[i], choices[i + 1]);
  return sum + last_seconds(chain, choices.back());
}

std::int64_t chain_bytes(const Chain& chain, std::span<const int> choices) {
  std::int64_t sum = choice_of(chain, chain.size() - 1, choices.back()).runtime_bytes;
  for (std::size_t i = 0; i < chain.size(); ++i) sum += choice_of(chain, i, choices[i]).resident_bytes;
  return sum;
}

ChainAnswer answer_of(const Chain& chain, std::vector<int> choices) {
  ChainAnswer answer{.choices = {}, .seconds = chain_seconds(chain, choices), .bytes = chain_bytes(chain, choices)};
  answer.choices = std::move(choices);
  return answer;
}

void verify(const Chain& chain) {
  const auto check = [](bool holds, const char* what) {
    if (!holds) throw InternalError(std::string("chain: ") + what);
  };
  check(!chain.nodes.empty(), "no nodes");
  check(chain.sub_batches >= 1, "no sub-batches");
  check(chain.gathers.size() + 1 == chain.size(), "as many gathers as edges");
  for (std::size_t i = 0; i < chain.size(); ++i) {
    check(!chain.nodes[i].empty(), "a node without choices");
    for (const ChainChoice& c : chain.nodes[i]) {
      check(std::min({c.forward.compute, c.forward.communication, c.backward.compute, c.backward.communication,
                      c.step_seconds}) >= 0.0,
            "negative seconds");
      check(c.resident_bytes >= 0 && c.runtime_bytes >= 0, "negative bytes");
    }
    if (i + 1 == chain.size()) break;
    check(chain.gathers[i].size() == chain.nodes[i].size() * chain.nodes[i + 1].size(), "a gather a pair of choices");
  }
}

}  // namespace strata
