#pragma once

/// @file
/// Runs of neighbours at regular distances, as kernels take them: the attributes run, size0, stride0, …, of which the
/// last is innermost, and period0, … where runs are cut short, see kernel_table. Without them the elements are
/// neighbours.

#include <cstddef>
#include <string_view>

#include "ir/model/attributes.hpp"
#include "ir/model/strided_block.hpp"

namespace strata {

constexpr std::size_t most_run_levels = 8;

/// @param first_key where the first run begins. @param who for the message. @throws Unsupported where @p block has more
/// levels than kernels know.
void set_runs(Attributes& to, std::string_view first_key, const StridedBlock& block, std::string_view who);

/// All but where the first run begins.
void copy_runs(const Attributes& from, Attributes& to);

}  // namespace strata
