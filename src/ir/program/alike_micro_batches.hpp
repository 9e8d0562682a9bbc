#pragma once

/// @file
/// Micro-batches of a Program's body that do the same as others before them. Reductions of gradients are not counted by
/// micro-batches: they belong to the one behind whose passes they stand.

#include <cstddef>
#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// Of each instruction of the body: the micro-batch that it belongs to, from 0 on.
std::vector<int> micro_batches_of(const Program& program, int sub_batches);

/// Micro-batches first, first + 1 … last of a Program, each of which is compared with the one so many before it, unless
/// that comes before the first.
struct MicroBatchRun {
  int first = 0;
  int last = 0;
  int apart = 1;
};

/// Instructions of the body, in order, by micro-batch compared. Empty where one has none, or does other work than the
/// one it is compared with: other kernels, collectives, groups or streams.
using AlikeMicroBatches = std::vector<std::vector<std::size_t>>;
/// @param micro_batches of each instruction.
AlikeMicroBatches alike_micro_batches(const Program& program, const std::vector<int>& micro_batches,
                                      const MicroBatchRun& compared);

/// What each micro-batch allocates lies where that of the one lies that it is compared with, of which there is one at
/// least: first fit comes to the same addresses again and again, so that more micro-batches need no room of their own.
bool addresses_repeat(const Program& program, const std::vector<int>& micro_batches, const MicroBatchRun& compared);

}  // namespace strata
