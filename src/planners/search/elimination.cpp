#include "planners/search/elimination.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/infinity.hpp"

namespace strata {
namespace {

using Costs = std::shared_ptr<const std::vector<double>>;
using Table = std::shared_ptr<const CostTable>;

/// A table and which of its sides the eliminated variable is.
struct Beside {
  Table table;
  bool is_row = true;
  double at(std::size_t own, std::size_t other) const { return is_row ? table->at(own, other) : table->at(other, own); }
  auto key() const { return std::pair(table.get(), is_row); }
};

Table sum_of(const CostTable& a, const CostTable& b) {
  CostTable sum = a;
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += b.values[i];
  return std::make_shared<const CostTable>(std::move(sum));
}

/// By choice of a (rows) and of b: the least over choices of the variable between them.
Table least_between(const std::vector<double>& own, const Beside& a, const Beside& b) {
  const std::size_t rows = a.is_row ? a.table->columns : a.table->rows;
  const std::size_t columns = b.is_row ? b.table->columns : b.table->rows;
  std::vector<double> of_b(own.size() * columns);  // by choice of the variable, then of b
  for (std::size_t c = 0; c < own.size(); ++c) {
    for (std::size_t j = 0; j < columns; ++j) of_b[c * columns + j] = b.at(c, j);
  }
  CostTable least{rows, columns, std::vector<double>(rows * columns, infinity)};
  for (std::size_t i = 0; i < rows; ++i) {
    double* const row = &least.values[i * columns];
    for (std::size_t c = 0; c < own.size(); ++c) {
      const double so_far = own[c] + a.at(c, i);
      if (so_far == infinity) continue;
      const double* const more = &of_b[c * columns];
      for (std::size_t j = 0; j < columns; ++j) row[j] = std::min(row[j], so_far + more[j]);
    }
  }
  return std::make_shared<const CostTable>(std::move(least));
}

LayoutProblem with_one_choice(const LayoutProblem& problem, std::size_t variable, std::size_t choice) {
  LayoutProblem result = problem;
  SearchVariable& fixed = result.variables[variable];
  fixed.cost = std::make_shared<const std::vector<double>>(1, (*fixed.cost)[choice]);
  fixed.bytes = nullptr;
  for (Coupling& coupling : result.couplings) {
    const CostTable& table = *coupling.cost;
    if (coupling.first == variable) {
      const double* const row = &table.values[choice * table.columns];
      coupling.cost = std::make_shared<const CostTable>(CostTable{1, table.columns, {row, row + table.columns}});
    } else if (coupling.second == variable) {
      CostTable column{table.rows, 1, {}};
      for (std::size_t i = 0; i < table.rows; ++i) column.values.push_back(table.at(i, choice));
      coupling.cost = std::make_shared<const CostTable>(std::move(column));
    }
  }
  return result;
}

class Elimination {
 public:
  explicit Elimination(const LayoutProblem& problem) : problem_(problem), beside_(problem.variables.size()) {
    for (const SearchVariable& variable : problem.variables) own_.push_back(variable.cost);
    for (std::size_t v = 0; v < own_.size(); ++v) left_.push_back(v);
    for (const Coupling& c : problem.couplings) couple(c.first, c.second, c.cost);
  }

  std::vector<int> solve() {
    while (!left_.empty()) {
      const std::optional<std::size_t> variable = next();
      if (!variable) return chosen_in_turn(most_met());
      std::erase(left_, *variable);
      remove(*variable);
    }
    return chosen();
  }

 private:
  struct Neighbour {
    std::size_t variable;
    Beside beside;
  };
  struct Removed {
    std::size_t variable;
    Costs own;
    std::vector<Neighbour> neighbours;
  };
  using Key =
      std::tuple<const std::vector<double>*, std::pair<const CostTable*, bool>, std::pair<const CostTable*, bool>>;

  std::vector<Neighbour> neighbours(std::size_t v) const {
    std::vector<Neighbour> all;
    for (const auto& [other, table] : beside_[v]) all.push_back({other, {table, v < other}});
    return all;
  }

  Key key_of(std::size_t v) const {
    const auto& [first, second] = std::pair(*beside_[v].begin(), *std::next(beside_[v].begin()));
    return {own_[v].get(), {first.second.get(), v < first.first}, {second.second.get(), v < second.first}};
  }

  /// One choice or one neighbour cost least. Of those with two the kind that there are most of: their tables are made
  /// once.
  std::optional<std::size_t> next() const {
    std::map<Key, int> alike;
    for (const std::size_t v : left_) {
      if (own_[v]->size() == 1 || beside_[v].size() <= 1) return v;
      if (beside_[v].size() == 2) ++alike[key_of(v)];
    }
    std::optional<std::size_t> best;
    int most = 0;
    for (const std::size_t v : left_) {
      if (beside_[v].size() != 2 || alike.at(key_of(v)) <= most) continue;
      best = v;
      most = alike.at(key_of(v));
    }
    return best;
  }

  /// Of what is left, the variable with most neighbours; of equals the one with fewest choices.
  std::size_t most_met() const {
    return *std::ranges::max_element(left_, {}, [&](std::size_t v) {
      return std::pair(beside_[v].size(), -static_cast<std::ptrdiff_t>(own_[v]->size()));
    });
  }

  std::vector<int> chosen_in_turn(std::size_t variable) const {
    std::vector<int> best;
    double least = infinity;
    for (std::size_t c = 0; c < problem_.num_choices(variable); ++c) {
      std::vector<int> choices = cheapest(with_one_choice(problem_, variable, c));
      if (choices.empty()) continue;
      choices[variable] = static_cast<int>(c);
      const double cost = problem_.cost(choices);
      if (cost >= least) continue;
      least = cost;
      best = std::move(choices);
    }
    return best;
  }

  /// @param table rows by choice of @p a < @p b.
  void couple(std::size_t a, std::size_t b, Table table) {
    const auto found = beside_[a].find(b);
    if (found != beside_[a].end()) {
      Table& sum = sums_[{found->second, table}];
      if (!sum) sum = sum_of(*found->second, *table);
      table = sum;
    }
    beside_[a][b] = table;
    beside_[b][a] = table;
  }

  void remove(std::size_t v) {
    const std::vector<Neighbour> others = neighbours(v);
    for (const Neighbour& each : others) beside_[each.variable].erase(v);
    removed_.push_back({v, own_[v], others});
    if (own_[v]->size() == 1) {
      const double alone = own_[v]->front() / static_cast<double>(std::max<std::size_t>(1, others.size()));
      for (const Neighbour& each : others) {
        add(each.variable, [&](std::size_t choice) { return alone + each.beside.at(0, choice); });
      }
    } else if (others.size() == 1) {
      add(others[0].variable, [&](std::size_t choice) {
        double least = infinity;
        for (std::size_t c = 0; c < own_[v]->size(); ++c) {
          least = std::min(least, (*own_[v])[c] + others[0].beside.at(c, choice));
        }
        return least;
      });
    } else if (others.size() == 2) {
      Table& between = between_[Key{own_[v].get(), others[0].beside.key(), others[1].beside.key()}];
      if (!between) between = least_between(*own_[v], others[0].beside, others[1].beside);
      couple(others[0].variable, others[1].variable, between);
    }
    beside_[v].clear();
  }

  template <typename More>
  void add(std::size_t variable, const More& more) {
    std::vector<double> sum = *own_[variable];
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += more(c);
    own_[variable] = std::make_shared<const std::vector<double>>(std::move(sum));
  }

  /// Backwards: what a variable's neighbours chose is known by then.
  std::vector<int> chosen() const {
    std::vector<int> choices(problem_.variables.size(), 0);
    for (std::size_t r = removed_.size(); r-- > 0;) {
      const Removed& removed = removed_[r];
      double least = infinity;
      for (std::size_t c = 0; c < removed.own->size(); ++c) {
        double cost = (*removed.own)[c];
        for (const Neighbour& each : removed.neighbours) {
          cost += each.beside.at(c, static_cast<std::size_t>(choices[each.variable]));
        }
        if (cost < least) {
          least = cost;
          choices[removed.variable] = static_cast<int>(c);
        }
      }
      if (least == infinity) return {};
    }
    return choices;
  }

  const LayoutProblem& problem_;
  std::vector<Costs> own_;                            ///< what is left of a variable's costs
  std::vector<std::map<std::size_t, Table>> beside_;  ///< by variable: its neighbours; rows are the lower one's
  std::vector<std::size_t> left_;
  std::vector<Removed> removed_;  ///< keeps alive what the keys below name
  std::map<std::pair<Table, Table>, Table> sums_;
  std::map<Key, Table> between_;
};

}  // namespace

std::vector<int> cheapest(const LayoutProblem& problem) { return Elimination(problem).solve(); }

}  // namespace strata
