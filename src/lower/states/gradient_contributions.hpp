#pragma once

/// @file
/// Which operators add to which gradients, and when: read off the order of a step, not counted while it is lowered.

#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"

namespace strata {

/// The backward of an operator, in an item of the order, makes a part of a parameter's gradient.
struct GradientContribution {
  int item = -1;
  int op = -1;  ///< of the graph
  int parameter = -1;
  int micro_batch = 0;
  // Of all contributions to the parameter this is
  bool first_of_micro_batch = false;
  bool last_of_micro_batch = false;
  bool last = false;  ///< of all micro-batches
  /// Nothing else of the micro-batch, to whichever parameter, follows.
  bool ends_micro_batch = false;
};

/// As they follow each other in the order: items need not be whole passes, and micro-batches may take turns.
std::vector<GradientContribution> gradient_contributions(const StepOrder& order, const ModelGraph& graph);

}  // namespace strata
