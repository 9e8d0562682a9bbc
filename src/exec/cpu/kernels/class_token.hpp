#pragma once

/// @file
/// What makes a sequence of an image and takes the one row of it that is classified: a class token in front of the
/// image's rows, with learned positions added to all, and the first row alone. f32 or bf16, sums in f32.
/// Source: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021, eq. 1 and 4.

#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cpu {

using strata::ClassTokenDims;
using strata::FirstRowDims;

/// y[images,positions + 1,channels]: row 0 is token[channels], row 1 + p row p of x[images,positions,channels], and to
/// each its row of positions[positions + 1,channels] is added.
void class_token_forward(const ClassTokenDims& dims, const void* x, const void* token, const void* positions, void* y);

/// dx = all rows of dy but the first of each image. dtoken (+)= the sum of those first rows, dpositions (+)= the sum of
/// dy over images, which are added in their order.
void class_token_backward(const ClassTokenDims& dims, const ClassTokenBackwardOperands& operands,
                          const ClassTokenAccumulate& accumulate);

/// y[samples,width] = row 0 of each sample of x[samples,sequence,width].
void first_row_forward(const FirstRowDims& dims, const void* x, void* y);

/// dx = dy in row 0 of each sample, 0 in the others.
void first_row_backward(const FirstRowDims& dims, const void* dy, void* dx);

}  // namespace strata::cpu
