#pragma once

/// @file
/// Kernels of a rank that has none of the samples, or none of the features, that they work on: where ranks do not
/// divide what they share, the last ones may be left without. Libraries and launches want at least one of everything,
/// so what remains of such a kernel is said in the Program: the sums that it would leave are zeros.

#include "ir/program/program.hpp"
#include "lower/step/builder.hpp"

namespace strata {

/// Adds @p instruction, or, where it reads nothing, a fill with zeros for each output that it would not add to. Of an
/// output without elements too, which has to be born.
void emit_what_is_left(const Place& here, Instruction&& instruction);

}  // namespace strata
