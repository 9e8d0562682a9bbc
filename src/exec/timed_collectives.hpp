#pragma once

/// @file
/// Collectives of no Program, to measure what carries them.

#include <cstdint>
#include <functional>

#include "base/collective.hpp"

namespace strata {

/// Carries out a collective of f32 @p times, one after the other, on the group that it was made for; all members call
/// it with the same arguments. A send goes from the first member to the second, the root of others is the first.
/// @param num_elements of the full tensor, see Collective. @return seconds of one of them on this rank; 0 where it has
/// no part in it.
using TimedCollectives = std::function<double(Collective kind, std::int64_t num_elements, int times)>;

}  // namespace strata
