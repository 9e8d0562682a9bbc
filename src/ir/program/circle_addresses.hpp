#pragma once

/// @file
/// Addresses of the body's buffers where repetitions of the body meet: lifetimes lie on a circle, because a buffer may
/// be born in one repetition and die in a later one, and what ends one repetition runs beside what begins the next.

#include <cstdint>

#include "ir/program/program.hpp"

namespace strata {

/// Give every buffer that the body allocates an offset, first fit in the order of allocation: two buffers share an
/// address only where in all repetitions every access of one is complete before the other is allocated.
/// @param base first address that may be used.
/// @return the end of the highest address used, @p base where there is none.
/// @throws InternalError naming a buffer that is still in use when its instruction allocates it again.
std::int64_t assign_circle_addresses(Program& program, std::int64_t base);

}  // namespace strata
