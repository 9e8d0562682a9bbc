#pragma once

/// @file
/// SUMMA (van de Geijn and Watts, 1997) on a grid of rows × columns of ranks: of X: m×k, W: k×n and Y: m×n each rank
/// holds one part, Y's where it computes it. k is cut into panels; for each, the rank of a row that holds its part of X
/// broadcasts that along the row, the rank of a column that holds its part of W broadcasts that along the column, and
/// everybody adds their product. The transposed forms, for the gradients: a panel of dX is the sum over a row of
/// dY·Wᵀ, which the rank that holds its X keeps; one of dW the sum over a column of Xᵀ·dY. Here: what the panels are.
///
/// k's digits (partition/tensor_layout) that the columns' axes cut say whose X a panel is; those that a row's axis
/// cuts, whose W. Where both take the same digits, which LayoutsOfModel::weight_digits sees to, there are lcm(rows,
/// columns) panels. They are of equal widths where the digits fill k; else the last are narrower, and those without
/// width are no panels.

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "lower/layouts/packing.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// Who holds what of k.
struct SummaCut {
  AxisSet rows = 0;                  ///< they split samples, and the weight's inputs
  AxisSet columns = 0;               ///< they split features: those of X, and the weight's outputs
  DimCut inputs;                     ///< how k is cut
  std::map<int, int> weight_digits;  ///< by axis of `rows`: the axis into whose digit it cuts the weight
};

/// Of one rank.
struct SummaSize {
  std::int64_t rows = 0;  ///< m: samples × positions
  std::int64_t out = 0;   ///< n
};

struct SummaPanels {
  struct Panel {
    int input_root = 0;      ///< index among the ranks of a row
    int input_piece = 0;     ///< of the parts that its X has
    int weight_root = 0;     ///< index among the ranks of a column
    int weight_piece = 0;    ///< of the parts that its W has
    std::int64_t width = 0;  ///< of k
  };
  AxisSet rows = 0, columns = 0;
  std::vector<Panel> panels;             ///< equal on all ranks
  std::array<std::int64_t, 2> widest{};  ///< of the first, the third, … of the panels, and of the others
  std::int64_t num_rows = 0;             ///< of this rank's X
  std::int64_t num_outputs = 0;          ///< of this rank's W
  bool is_even = true;                   ///< all panels are as wide
  Packing inputs;                        ///< X of this rank, rows × features → pieces × rows × width
  Packing weights;                       ///< W of this rank, outputs × inputs → pieces × outputs × width
  std::vector<std::int64_t> input_begins,
      weight_begins;  ///< by piece of this rank: where it stands, packed; and the end
};

SummaPanels summa_panels(const AtomicAxes& axes, const SummaCut& cut, const SummaSize& size, int rank);

/// What of k a rank's weight has.
DimPart weight_inputs(const AtomicAxes& axes, const SummaCut& cut, int rank);

}  // namespace strata
