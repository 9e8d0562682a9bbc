#pragma once

/// @file
/// One micro-batch's passes through a stage whose sub-batches take turns, so that a collective of one runs under the
/// compute of the next (Oases, sec. 3, fig. 3). Without sub-batches: segment after segment.
///
/// Numbers of sub-batches above, f: compute up to the next collective c that changes layouts, R: recomputation with its
/// collectives r, B: backward.
///   forward           f1⁰ c1⁰ f1¹ c1¹ f2⁰ c2⁰ f2¹ …
///   backward          without recomputation: B2⁰ c2⁰ B2¹ c2¹ B1⁰ …
///   recomputed        a layer is R1⁰ r1⁰ R1¹ r1¹ R2⁰ …, a barrier that awaits all of them, then B2⁰ c2⁰ B2¹ … B1¹ c1¹
///   with cross_pass   no barrier: R2⁰ B2⁰ c2⁰ R2¹ B2¹ c2¹ R1⁰ B1⁰ …, across layers; where recomputation communicates,
///                     R1⁰ r1⁰ R1¹ r1¹ R2⁰ B2⁰ … and likewise. A recomputation waits for no gradient, so between two
///                     collectives it comes first.

#include <vector>

#include "ir/order/step_order.hpp"

namespace strata {

/// @param segments of the stage.
std::vector<OrderItem> forward_of_sub_batches(const StepShape& shape, SegmentRange segments, int micro_batch);
std::vector<OrderItem> backward_of_sub_batches(const StepShape& shape, SegmentRange segments, int micro_batch);

}  // namespace strata
