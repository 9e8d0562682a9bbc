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

/// The digits of k of one panel: those that columns or rows cut have an index.
using PanelDigits = std::vector<Digit>;

/// A rank's part of k, digit by digit, and the outer dim of its tensor.
struct Held {
  std::vector<bool> is_fixed;  ///< by digit: the rank has one index of it
  std::int64_t count = 0;      ///< of k
  std::int64_t outer = 0;
};

/// Where the panels that are a rank's own stand in its tensor, in their order.
Packing blocks_of(const Held& held, const std::vector<const PanelDigits*>& own) {
  Packing packing;
  for (const PanelDigits* panel : own) {
    std::vector<Digit> left;
    for (std::size_t d = 0; d < panel->size(); ++d) {
      if (!held.is_fixed[d]) left.push_back((*panel)[d]);
    }
    const std::vector<DimPart> dims = {all_of(held.outer), part_of(std::move(left), held.count)};
    packing.add(block_of(dims), num_elements(dims));
  }
  return packing;
}

/// The same as one permutation, where all panels are equal: digits of k of which pieces are made come first, then the
/// outer dim, then what a piece has all of.
Packing permutation_of(const Held& held, const std::vector<Digit>& digits, const std::vector<bool>& is_piece) {
  Packing packing;
  Permutation& p = packing.permutation;
  p.sizes.push_back(held.outer);
  std::vector<int> others;
  for (std::size_t d = 0; d < digits.size(); ++d) {
    if (held.is_fixed[d]) continue;
    (is_piece[d] ? p.order : others).push_back(static_cast<int>(p.sizes.size()));
    p.sizes.push_back(digits[d].size);
  }
  p.order.push_back(0);
  std::ranges::copy(others, std::back_inserter(p.order));
  return packing;
}

/// Indices among the ranks of a row or column count their axes in ascending order.
int stride_in(const AtomicAxes& axes, AxisSet set, int axis) {
  return axes.num_ranks(set & ~((AxisSet{2} << axis) - 1));
}

std::vector<std::int64_t> begins_of(const std::vector<std::int64_t>& widths, std::int64_t outer) {
  std::vector<std::int64_t> begins = {0};
  for (const std::int64_t width : widths) begins.push_back(begins.back() + width * outer);
  return begins;
}

}  // namespace

SummaPanels summa_panels(const AtomicAxes& axes, const SummaCut& cut, const SummaSize& size, int rank) {
  const AxisOrder& order = cut.inputs.axes;
  PanelDigits all;  // nothing is fixed
  std::vector<bool> of_column, of_row;
  for (const int digit : order) {
    all.push_back({axes.size(digit), -1});
    of_column.push_back(has(cut.columns, digit));
    of_row.push_back(row_axis_of(cut, digit) >= 0);
  }
  all.push_back({part_size(axes, cut.inputs), -1});
  of_column.push_back(false);
  of_row.push_back(false);

  struct Candidate {
    SummaPanels::Panel panel;
    PanelDigits digits;
  };
  std::vector<Candidate> candidates = {{{}, all}};
  for (std::size_t d = 0; d < order.size(); ++d) {
    if (!of_column[d] && !of_row[d]) continue;  // inside a panel
    const auto num_indices = static_cast<int>(all[d].size);
    std::vector<Candidate> finer;
    for (const Candidate& candidate : candidates) {
      for (int c = 0; c < num_indices; ++c) {
        Candidate next = candidate;
        next.digits[d].index = c;
        if (of_column[d]) {
          next.panel.input_root += c * stride_in(axes, cut.columns, order[d]);
        } else {
          next.panel.input_piece = next.panel.input_piece * num_indices + c;
        }
        if (of_row[d]) {
          next.panel.weight_root += c * stride_in(axes, cut.rows, row_axis_of(cut, order[d]));
        } else {
          next.panel.weight_piece = next.panel.weight_piece * num_indices + c;
        }
        finer.push_back(std::move(next));
      }
    }
    candidates = std::move(finer);
  }

  SummaPanels result{.rows = cut.rows,
                     .columns = cut.columns,
                     .panels = {},
                     .num_rows = size.rows,
                     .num_outputs = size.out,
                     .is_even = divides(axes, cut.inputs),
                     .inputs = {},
                     .weights = {},
                     .input_begins = {},
                     .weight_begins = {}};
  std::vector<const PanelDigits*> own_inputs, own_weights;
  std::vector<std::int64_t> input_widths, weight_widths;
  const int column = axes.index(cut.columns, rank), row = axes.index(cut.rows, rank);
  for (Candidate& candidate : candidates) {
    const std::int64_t width = candidate.panel.width = part_of(candidate.digits, cut.inputs.size).count;
    if (candidate.panel.input_root == column) {
      own_inputs.push_back(&candidate.digits);
      input_widths.push_back(width);
    }
    if (candidate.panel.weight_root == row) {
      own_weights.push_back(&candidate.digits);
      weight_widths.push_back(width);
    }
    if (width == 0) continue;
    std::int64_t& widest = result.widest[result.panels.size() % result.widest.size()];
    widest = std::max(widest, width);
    result.panels.push_back(candidate.panel);
  }
  result.input_begins = begins_of(input_widths, size.rows);
  result.weight_begins = begins_of(weight_widths, size.out);
  const Held input{of_column, part_of(axes, cut.inputs, cut.columns, rank).count, size.rows};
  const Held weight{of_row, weight_inputs(axes, cut, rank).count, size.out};
  if (result.is_even) {
    result.inputs = permutation_of(input, all, of_row);
    result.weights = permutation_of(weight, all, of_column);
  } else {
    result.inputs = blocks_of(input, own_inputs);
    result.weights = blocks_of(weight, own_weights);
  }
  return result;
}

DimPart weight_inputs(const AtomicAxes& axes, const SummaCut& cut, int rank) {
  std::vector<Digit> digits;
  for (const int digit : cut.inputs.axes) {
    const int row_axis = row_axis_of(cut, digit);
    digits.push_back({axes.size(digit), row_axis < 0 ? -1 : axes.coordinate(row_axis, rank)});
  }
  digits.push_back({part_size(axes, cut.inputs), -1});
  return part_of(std::move(digits), cut.inputs.size);
}

}  // namespace strata
