#pragma once

/// @file
/// Elements that a rank moves: (q-1)/q of what a collective of q ranks makes, twice for an all-reduce. With I: m×k,
/// W: k×n and (S0:p0, B:p1, S1:p2) × (B:p0, S1:p1, S0:p2) → (S0:p0, S1:p1, P:p2):
///     forward   gather I over p1 (p1-1)/p1 · mk/(p0 p2);  reduce-scatter O over p2 (p2-1)/p2 · mn/(p0 p1)
///     backward  gather O's gradient over p2, reduce-scatter I's gradient over p1: the same numbers
///     weight gradient  all-reduce over p0 2 (p0-1)/p0 · kn/(p1 p2)
///     between homes of different p0  all-to-all (q-1)/q · mn/p, q the ranks that exchange
/// With algorithm ring each gather and scatter is as much in blocks from neighbour to neighbour, and backward gathers I
/// once more, (p1-1)/p1 · mk/(p0 p2).
/// With sum = all_reduce (Megatron-LM sec. 3, Oases sec. 2) ranks go on with all of a sum:
///     forward   all-reduce O over p2 2 (p2-1)/p2 · mn/(p0 p1);  I is there
///     backward  all-reduce I's gradient over p1 2 (p1-1)/p1 · mk/(p0 p2)
/// Source: AutoDDL sec. 3.1, table 2, and sec. 4.2 to 4.4. With algorithm summa on p0 rows, p2 columns and p1 replicas,
/// on average over ranks, which take turns as roots:
///     forward   broadcast I along rows (p2-1)/p2 · mk/(p0 p1) and W along columns (p0-1)/p0 · kn/p2
///     backward  broadcast both again, sum I's gradient along rows and W's along columns: the same numbers
///     weight gradient  all-reduce over p1 2 (p1-1)/p1 · kn/(p0 p2); of biases and norms, held by all rows, over p0 p1

#include <cstdint>

#include "ir/plan/plan.hpp"

namespace strata {

/// m×k times k×n, m over all ranks.
struct MatmulSize {
  double m = 0.0, k = 0.0, n = 0.0;
  double weights = 0.0;  ///< elements of the matrix and of what goes with it
  double matrix = 0.0;   ///< of them, the matrix; by panels alone
};

/// Elements by kind of collective, of the rank that moves most; of broadcasts and sums the mean over ranks.
struct Volume {
  double all_gather = 0.0, reduce_scatter = 0.0, all_to_all = 0.0, all_reduce = 0.0, broadcast = 0.0, reduce = 0.0;
  double total() const { return all_gather + reduce_scatter + all_to_all + all_reduce + broadcast + reduce; }
  Volume& operator+=(const Volume& other);
};

/// @p gathers_input: false where ranks load their own part of it: its gradient is then nobody's, too.
Volume forward_volume(const MatmulSize& size, const Layout& layout, bool gathers_input = true);
Volume backward_volume(const MatmulSize& size, const Layout& layout, bool gathers_input = true);
/// Of sums that all ranks go on with. @p gathers_input where it is split over p1 and has to be gathered all the same.
Volume whole_sum_forward_volume(const MatmulSize& size, const Layout& layout, bool gathers_input);
/// @p wants_input_gradient false where ranks load their own part of the input.
Volume whole_sum_backward_volume(const MatmulSize& size, const Layout& layout, bool gathers_input,
                                 bool wants_input_gradient);
Volume weight_gradient_volume(const MatmulSize& size, const Layout& layout);

/// Of inputs, and of weights, as one broadcast or sum of all panels moves them.
struct PanelVolume {
  double inputs = 0.0, weights = 0.0;
};
PanelVolume panel_volume(const MatmulSize& size, const Layout& layout);
Volume summa_forward_volume(const MatmulSize& size, const Layout& layout);
/// @p wants_input_gradient false where ranks load their own part of the input.
Volume summa_backward_volume(const MatmulSize& size, const Layout& layout, bool wants_input_gradient = true);
/// Over the replicas, and over all that hold the same part of what is not the matrix.
struct SummaGradientVolume {
  double matrix = 0.0, others = 0.0;
};
SummaGradientVolume summa_gradient_volume(const MatmulSize& size, const Layout& layout);
/// Panels into which k is cut: lcm(p0, p2), or p0·p2 where several operators use the weight.
int num_panels(const Layout& layout, bool shares_weight);

/// An all-to-all from the home (S0:p0, S1:p/p0) to (S0:p0', S1:p/p0').
struct Exchange {
  double moved_share = 0.0;  ///< of a rank's mn/p elements, those it sends
  Factor group;              ///< those that exchange among themselves
};

/// Rows and features are cut into digits, one a prime factor of the ranks (ir/tensor_layout): the factors that p0 and
/// p0' share keep what they do, the others exchange, in equal pieces. Where one divides the other that is their
/// quotient.
Exchange exchange_between(const Factor& from_p0, const Factor& to_p0);

/// Whether an output in @p from must be exchanged to be an input in @p to. Not where rows are cut alike; nor, if only
/// elementwise operators of one input stand between, where that is spared (partition/layout_rules.hpp).
bool needs_exchange(const Layout& from, const Layout& to, bool is_unary);

/// Elements that the all-to-all of a tensor of @p elements over all ranks moves, forward; backward moves as many.
double exchange_volume(double elements, const Layout& from, const Layout& to, const Factor& grid, bool is_unary);

/// Elements that a gather of samples moves, forward, of a tensor of @p elements over all ranks whose samples are cut
/// further in @p from than in @p to. Backward each rank takes its own of the gradient, which all have.
double gather_volume(double elements, const Layout& from, const Layout& to);

}  // namespace strata
