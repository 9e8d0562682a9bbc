#pragma once

/// @file
/// SUMMA (van de Geijn and Watts, 1997) on a grid of rows × columns of ranks: of X: m×k, W: k×n and Y: m×n each rank
/// holds one part, Y's where it computes it. k is cut into panels; for each, the rank of a row that holds its part of X
/// broadcasts that along the row, the rank of a column that holds its part of W broadcasts that along the column, and
/// everybody adds their product. The transposed forms, for the gradients: a panel of dX is the sum over a row of
/// dY·Wᵀ, which the rank that holds its X keeps; one of dW the sum over a column of Xᵀ·dY. Here: what the panels are.
///
/// k's digits (ir/tensor_layout) that the columns' axes cut say whose X a panel is; those that a row's axis cuts, whose
/// W. Where both take the same digits, which LayoutsOfModel::weight_digits sees to, there are lcm(rows, columns)
/// panels.

#include <cstdint>
#include <map>
#include <vector>

#include "lower/layouts/permutation.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// Who holds what of k.
struct SummaCut {
  AxisSet rows = 0;                  ///< they split samples, and the weight's inputs
  AxisSet columns = 0;               ///< they split features: those of X, and the weight's outputs
  AxisOrder inputs;                  ///< into whose digits k is cut
  std::map<int, int> weight_digits;  ///< by axis of `rows`: the axis into whose digit it cuts the weight
};

/// Of one rank.
struct SummaSize {
  std::int64_t rows = 0;  ///< m: samples × positions
  std::int64_t in = 0;    ///< k: of all ranks
  std::int64_t out = 0;   ///< n
};

struct SummaPanels {
  struct Panel {
    int input_root = 0;    ///< index among the ranks of a row
    int input_piece = 0;   ///< of the parts that its X has
    int weight_root = 0;   ///< index among the ranks of a column
    int weight_piece = 0;  ///< of the parts that its W has
  };
  AxisSet rows = 0, columns = 0;
  std::int64_t width = 0;  ///< of k, of one panel
  std::vector<Panel> panels;
  int num_input_pieces = 1, num_weight_pieces = 1;
  Permutation input_pack;   ///< X of a rank, rows × features → pieces × rows × width
  Permutation weight_pack;  ///< W of a rank, outputs × inputs → pieces × outputs × width
};

/// Equal on all ranks.
SummaPanels summa_panels(const AtomicAxes& axes, const SummaCut& cut, const SummaSize& size);

/// What of k, @p size elements, a rank's weight has.
std::vector<Digit> weight_inputs(const AtomicAxes& axes, const SummaCut& cut, int rank, std::int64_t size);

}  // namespace strata
