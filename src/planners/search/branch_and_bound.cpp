#include "planners/search/branch_and_bound.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/infinity.hpp"

namespace strata {

namespace {

constexpr double most_entries = 4e6;  ///< of the sums behind one table
constexpr double rounding = 1e-12;

/// The order in which variables are eliminated, and which later ones each has to do with when its turn comes. Choices
/// are given in the reverse order.
struct Order {
  std::vector<std::size_t> variables;
  std::vector<std::size_t> turn;                  ///< by variable: its place among them
  std::vector<std::vector<std::size_t>> scope;    ///< by variable, in the order of elimination
  std::vector<std::vector<std::size_t>> sources;  ///< by variable: those before it in whose scope it is the first
};

/// Whoever has fewest neighbours goes first. Nothing: a table would be too large.
std::optional<Order> order_of(const LayoutProblem& problem) {
  const std::size_t n = problem.variables.size();
  std::vector<std::set<std::size_t>> beside(n);
  for (const Coupling& c : problem.couplings) {
    beside[c.first].insert(c.second);
    beside[c.second].insert(c.first);
  }
  Order order{.variables = {},
              .turn = std::vector<std::size_t>(n),
              .scope = std::vector<std::vector<std::size_t>>(n),
              .sources = std::vector<std::vector<std::size_t>>(n)};
  std::vector<std::size_t> left(n);
  std::iota(left.begin(), left.end(), std::size_t{0});
  while (!left.empty()) {
    const std::size_t v = *std::ranges::min_element(left, {}, [&](std::size_t u) { return beside[u].size(); });
    std::erase(left, v);
    order.turn[v] = order.variables.size();
    order.variables.push_back(v);
    auto entries = static_cast<double>(problem.num_choices(v));
    for (const std::size_t u : beside[v]) {
      entries *= static_cast<double>(problem.num_choices(u));
      beside[u].erase(v);
      for (const std::size_t w : beside[v]) {
        if (w != u) beside[u].insert(w);
      }
    }
    if (entries > most_entries) return std::nullopt;
    order.scope[v].assign(beside[v].begin(), beside[v].end());
  }
  for (const std::size_t v : order.variables) {
    std::ranges::sort(order.scope[v], {}, [&](std::size_t u) { return order.turn[u]; });
    if (!order.scope[v].empty()) order.sources[order.scope[v].front()].push_back(v);
  }
  return order;
}

/// By choices of the variables in a scope: the least that those eliminated before cost beside them.
struct Least {
  std::span<const std::size_t> scope;
  std::vector<std::size_t> strides;
  std::vector<double> values;

  double at(std::span<const int> choices) const {
    std::size_t place = 0;
    for (std::size_t i = 0; i < scope.size(); ++i) place += strides[i] * static_cast<std::size_t>(choices[scope[i]]);
    return values[place];
  }
};

/// Bounds at one price.
class Bounds {
 public:
  Bounds(const LayoutProblem& problem, const Order& order, double scale, double price)
      : price_(price), order_(order), priced_(priced(problem, scale, price)), beside_(problem.variables.size()) {
    for (const Coupling& c : priced_.couplings) {
      const bool first_goes = order.turn[c.first] < order.turn[c.second];
      beside_[first_goes ? c.first : c.second].push_back({c.cost.get(), first_goes ? c.second : c.first, first_goes});
    }
    least_.resize(problem.variables.size());
    for (const std::size_t v : order.variables) eliminate(v);
  }

  double price() const { return price_; }
  /// Of every strategy.
  double beginning() const { return beginning_; }
  /// Of what follows where @p v, whose turn it is, has not chosen: part of the bound until it does.
  double behind(std::size_t v, std::span<const int> choices) const { return least_[v].at(choices); }
  /// What @p v costs with the choice that it has, beside those that have chosen and those that follow.
  double with(std::size_t v, std::span<const int> choices) const {
    double cost = (*priced_.variables[v].cost)[static_cast<std::size_t>(choices[v])];
    for (const Beside& each : beside_[v]) {
      const auto own = static_cast<std::size_t>(choices[v]), other = static_cast<std::size_t>(choices[each.other]);
      cost += each.is_row ? each.table->at(own, other) : each.table->at(other, own);
    }
    for (const std::size_t u : order_.sources[v]) cost += least_[u].at(choices);
    return cost;
  }

 private:
  struct Beside {
    const CostTable* table;
    std::size_t other;  ///< eliminated later
    bool is_row;
  };

  void eliminate(std::size_t v) {
    Least& least = least_[v];
    least.scope = order_.scope[v];
    std::size_t size = 1;
    for (const std::size_t u : least.scope) {
      least.strides.push_back(size);
      size *= priced_.num_choices(u);
    }
    std::vector<int> choices(priced_.variables.size(), 0);
    for (std::size_t place = 0; place < size; ++place) {
      for (std::size_t i = 0; i < least.scope.size(); ++i) {
        const std::size_t u = least.scope[i];
        choices[u] = static_cast<int>(place / least.strides[i] % priced_.num_choices(u));
      }
      double best = infinity;
      for (std::size_t c = 0; c < priced_.num_choices(v); ++c) {
        choices[v] = static_cast<int>(c);
        best = std::min(best, with(v, choices));
      }
      least.values.push_back(best);
    }
    if (least.scope.empty()) beginning_ += least.values.front();
  }

  double price_;
  const Order& order_;
  LayoutProblem priced_;
  std::vector<std::vector<Beside>> beside_;  ///< by variable
  std::vector<Least> least_;                 ///< by variable
  double beginning_ = 0.0;
};

class BranchAndBound {
 public:
  BranchAndBound(const LayoutProblem& problem, const Order& order, std::span<const double> prices,
                 std::int64_t most_beginnings, SearchAnswer& answer)
      : problem_(problem),
        order_(order),
        bytes_(problem, order, 0.0, 1.0),
        most_beginnings_(most_beginnings),
        answer_(answer) {
    for (const double price : prices) bounds_.emplace_back(problem, order, 1.0, price);
    choices_.assign(problem.variables.size(), 0);
  }

  /// @return whether all beginnings were looked at or left.
  bool run() {
    Costs at_first{.bytes = bytes_.beginning(), .costs = {}};
    for (const Bounds& bounds : bounds_) at_first.costs.push_back(bounds.beginning());
    return go_on(order_.variables.size(), at_first);
  }

 private:
  /// Least bytes, and least costs at each price.
  struct Costs {
    double bytes = 0.0;
    std::vector<double> costs;
  };
  struct Beginning {
    int choice = 0;
    double bound = 0.0;
    Costs costs;
  };

  /// Variables from @p turn on have chosen.
  bool go_on(std::size_t turn, const Costs& so_far) {
    if (turn == 0) {
      const double cost = problem_.cost(choices_);
      if (cost < answer_.cost && problem_.fits(choices_)) {
        answer_.cost = cost;
        answer_.choices = choices_;
      }
      return true;
    }
    if (++num_beginnings_ > most_beginnings_) return false;
    const std::size_t v = order_.variables[turn - 1];
    const auto capacity = static_cast<double>(problem_.capacity_bytes);
    std::vector<Beginning> beginnings;
    for (std::size_t c = 0; c < problem_.num_choices(v); ++c) {
      choices_[v] = static_cast<int>(c);
      Beginning b{.choice = choices_[v], .bound = 0.0, .costs = {}};
      b.costs.bytes = so_far.bytes - bytes_.behind(v, choices_) + bytes_.with(v, choices_);
      if (b.costs.bytes > capacity) continue;
      for (std::size_t p = 0; p < bounds_.size(); ++p) {
        const Bounds& bounds = bounds_[p];
        const double cost = so_far.costs[p] - bounds.behind(v, choices_) + bounds.with(v, choices_);
        b.costs.costs.push_back(cost);
        b.bound = std::max(b.bound, cost - bounds.price() * capacity);
      }
      if (b.bound < answer_.cost * (1.0 - rounding)) beginnings.push_back(std::move(b));
    }
    std::ranges::stable_sort(beginnings, {}, &Beginning::bound);
    for (const Beginning& b : beginnings) {
      if (b.bound >= answer_.cost * (1.0 - rounding)) break;
      choices_[v] = b.choice;
      if (!go_on(turn - 1, b.costs)) return false;
    }
    return true;
  }

  const LayoutProblem& problem_;
  const Order& order_;
  Bounds bytes_;
  std::vector<Bounds> bounds_;  ///< by price
  std::int64_t most_beginnings_;
  SearchAnswer& answer_;
  std::vector<int> choices_;
  std::int64_t num_beginnings_ = 0;
};

}  // namespace

void prove_cheapest(const LayoutProblem& problem, std::span<const double> prices, SearchAnswer& answer,
                    std::int64_t most_beginnings) {
  const std::optional<Order> order = order_of(problem);
  if (order && BranchAndBound(problem, *order, prices, most_beginnings, answer).run()) {
    answer.lower_bound = answer.cost;
  }
}

}  // namespace strata
