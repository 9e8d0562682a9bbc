#pragma once

/// @file
/// Neighbouring instructions that one kernel of the executor computes become one, before waits, workspaces and
/// lifetimes are found: these then are the fused ones', and what is counted of a Program is what runs.
///
///     convolution_forward, relu_forward in its place      one convolution_forward with `relu`
///     max_pool_backward, relu_backward in its place       one max_pool_backward; its max_pool_forward has `relu`, and
///                                                         nothing in backward reads what the ReLU wrote
///     linear_forward, gelu_forward                        one linear_forward with `gelu`, which writes what GELU is
///                                                         applied to as well where another reads it
///     linear_backward_input, gelu_backward in its place   one linear_backward_input with `gelu`
///     add, layer_norm_forward or rms_norm_forward of it   the norm with `adds`, which writes the sum as well
///     relu_backward or max_pool_backward,                 the first makes dbias where it makes dx, and the other does
///       convolution_backward_weight with dbias            not read its dy for that once more

#include <span>
#include <vector>

#include "ir/program/fusions.hpp"
#include "ir/program/program.hpp"

namespace strata {

/// Fuses those of @p section that @p fusions allows.
/// @param spans by instruction, in the order of emission: only neighbours with one number are fused, between which
/// nothing but their elements says what must come first.
/// @return by instruction: which one computes it now. Itself, or it is left out, and stands in @p section still.
std::vector<int> fuse(const Fusions& fusions, std::vector<Instruction>& section, std::span<const int> spans);

}  // namespace strata
