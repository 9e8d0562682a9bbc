#pragma once

/// @file
/// Which ranks of a job hold each other up: those that exchange something, those whose exchanges share the NICs of a
/// node, and all that these hold up in turn. Others go at their own pace. Ranks are told apart by class, as the
/// simulator tells them.

#include <cstddef>
#include <span>
#include <vector>

#include "ir/program/program.hpp"
#include "predict/prediction.hpp"

namespace strata::predict {

/// By class: the first one of those that hold each other up with it, which may be itself.
/// @param instructions by class: those of its Program that are looked at.
std::vector<std::size_t> classes_that_meet(const LoweredJob& job, int ranks_per_node,
                                           std::span<const std::vector<const Instruction*>> instructions);

}  // namespace strata::predict
