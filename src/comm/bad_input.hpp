#pragma once

/// @file
/// The end of a verb under MPI whose input is bad: one sentence for the whole job, from whichever worlds MPI has made
/// of it.

#include "base/environment.hpp"
#include "base/error.hpp"
#include "comm/world.hpp"

namespace strata::comm {

/// Prints @p error, which all ranks hold, once. @returns the exit code of this rank.
///
/// A launcher that MPI does not understand starts many worlds of one rank. Only the launcher's first then speaks; the
/// others end with 0, since a non-zero exit of theirs would have the launcher kill the speaker before it has spoken.
int report_bad_input(const UserError& error, const comm::World& world, const Environment& environment);

}  // namespace strata::comm
