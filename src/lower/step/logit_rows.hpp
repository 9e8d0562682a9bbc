#pragma once

/// @file
/// Rows of logits a whole number of vectors apart. A GPU's matrix products move rows in vectors where one row begins
/// so many bytes behind the other, and are several times slower where a vocabulary such as 50257 is their distance.
///
///     linear_forward, cross_entropy or top_k,             the same with `ld`, on a buffer that has it
///       linear_backward_input, linear_backward_weight

#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// Elements: 16 bytes of bf16.
constexpr std::int64_t logit_vector = 8;

/// Changes the buffers of logits, and of their gradients, to which none but these kernels, without biases, have access
/// in @p section: the others, and those whose rows are whole vectors as they are, stay.
void put_logit_rows_in_vectors(std::vector<Instruction>& section, std::vector<Buffer>& buffers);

}  // namespace strata
