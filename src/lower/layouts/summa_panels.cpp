#include "lower/layouts/summa_panels.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace strata {
namespace {

/// The axis of the weight's rows that takes the digit of axis @p digit; -1: none does.
int row_axis_of(const SummaCut& cut, int digit) {
  for (const auto& [axis, taken] : cut.weight_digits) {
    if (taken == digit) return axis;
  }
  return -1;
}

/// The digits of k that a rank has all of, behind @p outer others: those of @p pieces first, then the outer dim, then
/// the rest.
struct Pack {
  Pack(const AtomicAxes& axes, std::int64_t outer) : axes_(axes) { permutation.sizes.push_back(outer); }

  void add(int axis, bool is_piece) {
    (is_piece ? pieces : others).push_back(static_cast<int>(permutation.sizes.size()));
    permutation.sizes.push_back(axes_.size(axis));
  }
  Permutation finish(std::int64_t rest) && {
    permutation.order = pieces;
    permutation.order.push_back(0);
    std::ranges::copy(others, std::back_inserter(permutation.order));
    permutation.order.push_back(static_cast<int>(permutation.sizes.size()));
    permutation.sizes.push_back(rest);
    return std::move(permutation);
  }

  Permutation permutation;
  std::vector<int> pieces, others;  ///< dims

 private:
  const AtomicAxes& axes_;
};

}  // namespace

SummaPanels summa_panels(const AtomicAxes& axes, const SummaCut& cut, const SummaSize& size) {
  SummaPanels result{
      .rows = cut.rows, .columns = cut.columns, .width = size.in, .panels = {{}}, .input_pack = {}, .weight_pack = {}};
  // Indices among the ranks of a row or column count their axes in ascending order.
  const auto stride_in = [&](AxisSet set, int axis) { return axes.num_ranks(set & ~((AxisSet{2} << axis) - 1)); };
  Pack inputs(axes, size.rows), weights(axes, size.out);
  std::int64_t rest = size.in;
  for (const int digit : cut.inputs) {
    rest /= axes.size(digit);
    const int row_axis = row_axis_of(cut, digit);
    const bool of_columns = has(cut.columns, digit);
    if (!of_columns) inputs.add(digit, row_axis >= 0);
    if (row_axis < 0) weights.add(digit, of_columns);
    if (!of_columns && row_axis < 0) continue;  // inside a panel
    result.width /= axes.size(digit);
    if (!of_columns) result.num_input_pieces *= static_cast<int>(axes.size(digit));
    if (row_axis < 0) result.num_weight_pieces *= static_cast<int>(axes.size(digit));
    std::vector<SummaPanels::Panel> finer;
    for (const SummaPanels::Panel& panel : result.panels) {
      for (int c = 0; c < axes.size(digit); ++c) {
        SummaPanels::Panel next = panel;
        if (of_columns) {
          next.input_root += c * stride_in(cut.columns, digit);
        } else {
          next.input_piece = next.input_piece * static_cast<int>(axes.size(digit)) + c;
        }
        if (row_axis >= 0) {
          next.weight_root += c * stride_in(cut.rows, row_axis);
        } else {
          next.weight_piece = next.weight_piece * static_cast<int>(axes.size(digit)) + c;
        }
        finer.push_back(next);
      }
    }
    result.panels = std::move(finer);
  }
  result.input_pack = std::move(inputs).finish(rest);
  result.weight_pack = std::move(weights).finish(rest);
  return result;
}

std::vector<Digit> weight_inputs(const AtomicAxes& axes, const SummaCut& cut, int rank, std::int64_t size) {
  std::vector<Digit> digits;
  for (const int digit : cut.inputs) {
    const int row_axis = row_axis_of(cut, digit);
    digits.push_back({axes.size(digit), row_axis < 0 ? -1 : axes.coordinate(row_axis, rank)});
    size /= axes.size(digit);
  }
  digits.push_back({size, -1});
  return digits;
}

}  // namespace strata
