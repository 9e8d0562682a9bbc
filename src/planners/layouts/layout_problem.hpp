#pragma once

/// @file
/// The choice of layouts as a search sees it: variables with a few choices each, a cost for each choice and for each
/// pair of choices of two variables that meet. Numbers alone, so that every search is tested on any numbers.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace strata {

/// Cost by choice of the first and of the second variable, row by row; shared where many pairs have the same numbers.
struct CostTable {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values{};
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
};

struct SearchVariable {
  std::string name;
  /// By choice; shared where variables have the same numbers. Infinity: not this one.
  std::shared_ptr<const std::vector<double>> cost;
  /// By choice, what counts against the capacity; null: nothing. Shared as above.
  std::shared_ptr<const std::vector<std::int64_t>> bytes{};
};

struct Coupling {
  std::size_t first = 0, second = 0;  ///< variables, first < second
  std::shared_ptr<const CostTable> cost;
};

struct LayoutProblem {
  std::vector<SearchVariable> variables;
  std::vector<Coupling> couplings;
  std::int64_t capacity_bytes = 0;  ///< of the sum over variables; 0: no limit

  std::size_t num_choices(std::size_t variable) const { return variables[variable].cost->size(); }
  /// Whatever the capacity.
  double cost(std::span<const int> choices) const;
  std::int64_t bytes(std::span<const int> choices) const;
  bool fits(std::span<const int> choices) const { return capacity_bytes == 0 || bytes(choices) <= capacity_bytes; }
  /// As cost(); infinity over the capacity.
  double cost_within(std::span<const int> choices) const;
};

/// @p problem with costs cost · @p scale + bytes · @p price; impossible stays impossible. Shared numbers stay shared.
LayoutProblem priced(const LayoutProblem& problem, double scale, double price);

/// The best so far after so many strategies were looked at.
struct TracePoint {
  std::int64_t evaluations = 0;
  double cost = 0.0;
};

struct SearchAnswer {
  std::vector<int> choices;  ///< empty: nothing was found within the capacity
  double cost = 0.0;
  std::int64_t evaluations = 0;  ///< strategies whose cost was computed; 0 where the search computes none whole
  double lower_bound = 0.0;      ///< no strategy costs less; 0: not known
  bool binds_capacity = false;   ///< without the capacity another strategy is known to cost less
  double acceptance_rate = 0.0;  ///< Metropolis-Hastings: of proposals
  std::vector<TracePoint> trace{};
};

/// Keeps the best of what a search looks at.
class BestSoFar {
 public:
  explicit BestSoFar(SearchAnswer& answer) : answer_(answer) {}
  /// One more strategy was looked at, and costs @p cost.
  void look(double cost, std::span<const int> choices);

 private:
  SearchAnswer& answer_;
};

}  // namespace strata
