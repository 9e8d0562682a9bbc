#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/infinity.hpp"
#include "planners/oases/chain_search.hpp"
#include "planners/oases/chain_seconds.hpp"

namespace strata {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max() / 4;

/// What is compared: seconds, and what bytes cost at a price of seconds a byte.
class Priced {
 public:
  Priced(const Chain& chain, double seconds_a_byte) : chain_(chain), seconds_a_byte_(seconds_a_byte) {}
  double node(std::size_t i, int choice) const {
    const ChainChoice& c = chain_.nodes[i][static_cast<std::size_t>(choice)];
    const bool is_last = i + 1 == chain_.size();
    double cost = seconds_a_byte_ * static_cast<double>(c.resident_bytes + (is_last ? c.runtime_bytes : 0));
    if (i == 0) cost += first_seconds(chain_, choice);
    if (is_last) cost += last_seconds(chain_, choice);
    return cost;
  }

 private:
  const Chain& chain_;
  double seconds_a_byte_;
};

using Pairs = std::vector<std::vector<double>>;  ///< pair_seconds by node, as Chain::gathers

Pairs all_pairs(const Chain& chain) {
  Pairs pairs(chain.size() - 1);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    for (std::size_t a = 0; a < chain.nodes[i].size(); ++a) {
      for (std::size_t b = 0; b < chain.nodes[i + 1].size(); ++b) {
        pairs[i].push_back(pair_seconds(chain, i, static_cast<int>(a), static_cast<int>(b)));
      }
    }
  }
  return pairs;
}

/// The least cost from a node's choice, its own included, to the end of the chain.
struct ToGo {
  std::vector<std::vector<double>> cost;  ///< [node][choice]
  std::vector<std::vector<int>> next;     ///< the choice of the next node on that way
};

ToGo to_go(const Chain& chain, const Pairs& pairs, const Priced& priced) {
  ToGo table;
  table.cost.resize(chain.size());
  table.next.resize(chain.size());
  for (std::size_t i = chain.size(); i-- > 0;) {
    const std::size_t choices = chain.nodes[i].size();
    for (std::size_t a = 0; a < choices; ++a) {
      double best = i + 1 == chain.size() ? 0.0 : infinity;
      int next = 0;
      if (i + 1 < chain.size()) {
        const std::size_t width = chain.nodes[i + 1].size();
        for (std::size_t b = 0; b < width; ++b) {
          const double cost = pairs[i][a * width + b] + table.cost[i + 1][b];
          if (cost < best) best = cost, next = static_cast<int>(b);
        }
      }
      table.cost[i].push_back(best + priced.node(i, static_cast<int>(a)));
      table.next[i].push_back(next);
    }
  }
  return table;
}

std::vector<int> cheapest_way(const ToGo& table) {
  std::vector<int> choices;
  const auto& first = table.cost.front();
  int choice = static_cast<int>(std::min_element(first.begin(), first.end()) - first.begin());
  for (std::size_t i = 0; i < table.cost.size(); ++i) {
    choices.push_back(choice);
    choice = table.next[i][static_cast<std::size_t>(choice)];
  }
  return choices;
}

/// The fewest bytes from a node's choice to the end.
std::vector<std::vector<std::int64_t>> bytes_to_go(const Chain& chain) {
  std::vector<std::vector<std::int64_t>> table(chain.size());
  std::int64_t behind = 0;
  for (std::size_t i = chain.size(); i-- > 0;) {
    const bool is_last = i + 1 == chain.size();
    std::int64_t least = no_limit;
    for (const ChainChoice& c : chain.nodes[i]) {
      table[i].push_back(c.resident_bytes + (is_last ? c.runtime_bytes : 0) + behind);
      least = std::min(least, table[i].back());
    }
    behind = least;
  }
  return table;
}

/// A way from the first node to a choice of the one in question, which is not yet paid for.
struct Label {
  double seconds = 0.0;
  std::int64_t bytes = 0;
  int choice = 0;
  int before = -1;  ///< label of the node before
};

class ExactSearch {
 public:
  explicit ExactSearch(const Chain& chain)
      : chain_(chain),
        capacity_(chain.capacity_bytes == 0 ? no_limit : chain.capacity_bytes),
        pairs_(all_pairs(chain)),
        seconds_to_go_(to_go(chain, pairs_, Priced(chain, 0.0))),
        bytes_to_go_(bytes_to_go(chain)) {}

  ChainAnswer best() {
    if (*std::ranges::min_element(bytes_to_go_.front()) > capacity_) return {};
    if (!take(cheapest_way(seconds_to_go_))) {  // the fastest of all does not fit
      raise_price();
      walk();
    }
    return best_.seconds < impossible_seconds ? best_ : ChainAnswer{};
  }

 private:
  /// Remembers it where it fits and is the best so far. @return whether it fits.
  bool take(std::vector<int> choices) {
    ChainAnswer answer = answer_of(chain_, std::move(choices));
    if (answer.bytes > capacity_) return false;
    if (answer.is_better_than(best_)) best_ = std::move(answer);
    return true;
  }

  /// Finds the price of a byte at which the cheapest way is about as large as the capacity: there the Lagrangian is the
  /// best bound, and what fits on the way to it is nearly the best answer.
  void raise_price() {
    double low = 0.0, high = 1e-12;
    const auto fits_at = [&](double price) {
      ToGo table = to_go(chain_, pairs_, Priced(chain_, price));
      const bool fits = take(cheapest_way(table));
      const double bound = *std::ranges::min_element(table.cost.front()) - price * static_cast<double>(capacity_);
      if (bound > bound_) bound_ = bound, price_ = price, priced_to_go_ = std::move(table);
      return fits;
    };
    constexpr int doublings = 80, halvings = 40;
    for (int k = 0; k < doublings && !fits_at(high); ++k) low = high, high *= 2.0;
    for (int k = 0; k < halvings; ++k) {
      const double middle = 0.5 * (low + high);
      (fits_at(middle) ? high : low) = middle;
    }
  }

  bool can_win(double seconds, std::int64_t bytes, std::size_t node, int choice) const {
    const auto c = static_cast<std::size_t>(choice);
    if (bytes + bytes_to_go_[node][c] > capacity_) return false;
    if (!best_.fits()) return true;
    const double limit = best_.seconds * (1.0 - 1e-12);
    if (seconds + seconds_to_go_.cost[node][c] >= limit) return false;
    if (price_ == 0.0) return true;
    const double paid = price_ * static_cast<double>(bytes - capacity_);
    return seconds + paid + priced_to_go_.cost[node][c] < limit + 1e-12 * price_ * static_cast<double>(capacity_);
  }

  /// Of @p labels, all of one choice, those that no other beats.
  static void keep_front(std::vector<Label>& labels) {
    std::ranges::stable_sort(labels, [](const Label& a, const Label& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.seconds < b.seconds;
    });
    double fewest = infinity;
    std::erase_if(labels, [&](const Label& label) {
      if (label.seconds >= fewest) return true;
      fewest = label.seconds;
      return false;
    });
  }

  void walk() {
    std::vector<std::vector<Label>> all(chain_.size());
    for (std::size_t a = 0; a < chain_.nodes[0].size(); ++a) {
      if (can_win(0.0, 0, 0, static_cast<int>(a))) all[0].push_back({.choice = static_cast<int>(a)});
    }
    for (std::size_t i = 0; i + 1 < chain_.size(); ++i) {
      const std::size_t width = chain_.nodes[i + 1].size();
      for (std::size_t b = 0; b < width; ++b) {
        std::vector<Label> reached;
        for (std::size_t l = 0; l < all[i].size(); ++l) {
          const Label& label = all[i][l];
          const auto a = static_cast<std::size_t>(label.choice);
          const double own = i == 0 ? first_seconds(chain_, label.choice) : 0.0;
          const double seconds = label.seconds + own + pairs_[i][a * width + b];
          const std::int64_t bytes = label.bytes + chain_.nodes[i][a].resident_bytes;
          if (!can_win(seconds, bytes, i + 1, static_cast<int>(b))) continue;
          reached.push_back({seconds, bytes, static_cast<int>(b), static_cast<int>(l)});
        }
        keep_front(reached);
        all[i + 1].insert(all[i + 1].end(), reached.begin(), reached.end());
      }
    }
    for (const Label& last : all.back()) {
      std::vector<int> choices(chain_.size());
      const Label* label = &last;
      for (std::size_t i = chain_.size(); i-- > 0;) {
        choices[i] = label->choice;
        if (i > 0) label = &all[i - 1][static_cast<std::size_t>(label->before)];
      }
      take(std::move(choices));
    }
  }

  const Chain& chain_;
  std::int64_t capacity_;
  Pairs pairs_;
  ToGo seconds_to_go_;
  std::vector<std::vector<std::int64_t>> bytes_to_go_;
  double bound_ = 0.0;  ///< seconds that nothing within the capacity is below, at price_
  double price_ = 0.0;  ///< of a byte, in seconds
  ToGo priced_to_go_;
  ChainAnswer best_;
};

/// @p chain whose ends have @p choice alone: others take for ever.
Chain restricted_to(Chain chain, int choice) {
  for (auto* end : {&chain.nodes.front(), &chain.nodes.back()}) {
    for (std::size_t a = 0; a < end->size(); ++a) {
      if (static_cast<int>(a) != choice) (*end)[a].forward.compute = impossible_seconds;
    }
  }
  return chain;
}

}  // namespace

ChainAnswer search_exactly(const Chain& chain) {
  verify(chain);
  if (!chain.ends_agree || chain.size() == 1) return ExactSearch(chain).best();
  ChainAnswer best;
  for (std::size_t a = 0; a < chain.nodes.front().size(); ++a) {
    const Chain with_ends = restricted_to(chain, static_cast<int>(a));
    const ChainAnswer answer = ExactSearch(with_ends).best();
    if (answer.is_better_than(best)) best = answer;
  }
  return best;
}

}  // namespace strata
