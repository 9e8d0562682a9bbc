#pragma once

/// @file
/// Kernels of a rank that has none of the samples, or none of the features, that they work on: where ranks do not
/// divide what they share, the last ones may be left without. Libraries and launches want at least one of everything,
/// so what remains of such a kernel is said in the Program: the sums that it would leave are zeros.

#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// What runs in the place of @p instruction: itself, or, where it reads nothing, a fill with zeros for each output that
/// it would not add to. Of an output without elements too, which has to be born.
std::vector<Instruction> what_is_left_of(Instruction instruction);

}  // namespace strata
