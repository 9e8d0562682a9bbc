#pragma once

/// @file
/// What two layouts decide together, for those who count it and those who lower it.

#include "ir/plan/plan.hpp"

namespace strata {

/// A product in @p to reads what one in @p from writes, through elementwise operators of one input alone, without the
/// all-to-all that another p0 costs: where p1 = p2' the output is reduce-scattered along its rows, (S0:p0·p2, S1:p1),
/// and gathered along them, (S0:p0', B:p1', S1:p2'). Source: AutoDDL sec. 4.3.
inline bool spares_exchange(const Layout& from, const Layout& to) { return from.p0 != to.p0 && from.p1 == to.p2; }

}  // namespace strata
