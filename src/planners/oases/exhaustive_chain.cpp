#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "planners/oases/chain_search.hpp"
#include "planners/oases/chain_seconds.hpp"

namespace strata {
namespace {

void take_better(const Chain& chain, std::vector<int> choices, ChainAnswer& best) {
  if (chain.ends_agree && choices.front() != choices.back()) return;
  ChainAnswer answer = answer_of(chain, std::move(choices));
  const bool is_possible =
      answer.seconds < impossible_seconds && (chain.capacity_bytes == 0 || answer.bytes <= chain.capacity_bytes);
  if (is_possible && answer.is_better_than(best)) best = std::move(answer);
}

/// Counts up as a number whose digits are choices, the last node's fastest. @return false behind the last.
bool next_choices(const Chain& chain, std::vector<int>& choices) {
  for (std::size_t i = chain.size(); i-- > 0;) {
    if (++choices[i] < static_cast<int>(chain.nodes[i].size())) return true;
    choices[i] = 0;
  }
  return false;
}

}  // namespace

ChainAnswer search_exhaustively(const Chain& chain) {
  verify(chain);
  constexpr double most = 1e7;
  double count = 1.0;
  for (const auto& node : chain.nodes) count *= static_cast<double>(node.size());
  if (count > most) {
    throw Unsupported(
        fmt::format("search = exhaustive looks at no more than {:.0e} plans; {} nodes of {} choices have {:.3g}; "
                    "accepted: exact",
                    most, chain.size(), chain.nodes.front().size(), count));
  }
  ChainAnswer best;
  std::vector<int> choices(chain.size(), 0);
  do {
    take_better(chain, choices, best);
  } while (next_choices(chain, choices));
  return best;
}

ChainAnswer search_two_in_order(const Chain& chain) {
  verify(chain);
  ChainAnswer best;
  const int num_choices = static_cast<int>(chain.nodes.front().size());
  for (int earlier = 0; earlier < num_choices; ++earlier) {
    for (int later = earlier; later < num_choices; ++later) {
      const std::size_t most_cut = later == earlier ? 1 : chain.size();
      for (std::size_t cut = later == earlier ? 0 : 1; cut < most_cut; ++cut) {
        std::vector<int> choices(chain.size(), later);
        for (std::size_t i = 0; i < cut; ++i) choices[i] = earlier;
        if (chain.ends_agree) choices.back() = choices.front();
        take_better(chain, std::move(choices), best);
      }
    }
  }
  return best;
}

}  // namespace strata
