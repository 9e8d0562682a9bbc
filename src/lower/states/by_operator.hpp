#pragma once

/// @file
/// What a rule says of operators in the items of an order, looked up once a kernel: gradient_sums and parameter_gathers
/// have a value each.

#include <cstddef>
#include <vector>

#include "base/error.hpp"
#include "ir/order/step_order.hpp"

namespace strata {

/// An item has the operators of its segment; an update has none. What nothing was said of is T{}.
template <class T>
class ByOperator {
 public:
  ByOperator() = default;
  explicit ByOperator(const StepOrder& order) {
    std::size_t num_values = 0;
    for (const OrderItem& item : order.items) {
      Item& here = items_.emplace_back(Item{.first_value = num_values});
      if (item.pass == Pass::update) continue;
      const Segment& segment = order.shape.segments[static_cast<std::size_t>(item.segment)];
      here.first_operator = segment.first_operator;
      here.num_operators = segment.num_operators;
      num_values += static_cast<std::size_t>(segment.num_operators);
    }
    values_.resize(num_values);
  }

  /// @param op of the graph. @throws InternalError if it is none of the item's.
  const T& at(int item, int op) const { return values_[index(item, op)]; }
  T& at(int item, int op) { return values_[index(item, op)]; }

  bool operator==(const ByOperator&) const = default;

 private:
  struct Item {
    std::size_t first_value = 0;
    int first_operator = 0;
    int num_operators = 0;
    bool operator==(const Item&) const = default;
  };

  std::size_t index(int item, int op) const {
    const Item& here = items_.at(static_cast<std::size_t>(item));
    const int offset = op - here.first_operator;
    STRATA_INVARIANT(offset >= 0 && offset < here.num_operators, "an operator is looked up in an item of others");
    return here.first_value + static_cast<std::size_t>(offset);
  }

  std::vector<Item> items_;
  std::vector<T> values_;
};

}  // namespace strata
