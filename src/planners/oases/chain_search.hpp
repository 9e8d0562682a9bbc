#pragma once

/// @file
/// The choices of a chain that take the fewest seconds within its capacity. Of equal seconds the fewest bytes, of equal
/// bytes the choices that come first.

#include <functional>
#include <span>

#include "planners/oases/chain.hpp"

namespace strata {

/// Exact: a dynamic program over (node, choice, bytes) that keeps, of all ways to a node's choice, those that no other
/// beats in both seconds and bytes. Two bounds leave out what cannot win: the fewest seconds and the fewest bytes that
/// the rest of the chain takes at least, and the same of a Lagrangian in which bytes cost seconds. Seconds are compared
/// up to rounding (1e-12 of them).
ChainAnswer search_exactly(const Chain& chain);

/// All choices, one after another: for tests, and to be read beside the search above. @throws Unsupported with the
/// number of them where they are more than ten million.
ChainAnswer search_exhaustively(const Chain& chain);

/// As the authors' program, what it can run: two choices, the earlier nodes have the first of them, the later ones the
/// other. Choices are in ascending order of degree, so the smaller degree comes first (get_plan and cutpoint of their
/// code, which leaves this to a rounding of an unrestricted optimum; this is the best of its kind).
ChainAnswer search_two_in_order(const Chain& chain);

}  // namespace strata
