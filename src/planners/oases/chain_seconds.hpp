#pragma once

/// @file
/// Seconds and bytes of a chain under given choices, as sums of what neighbours take together (Oases, eqs. 3 and 4), so
/// that a search can add them up node by node.

#include <cstddef>
#include <cstdint>
#include <span>

#include "planners/oases/chain.hpp"

namespace strata {

/// What the first node takes that no pair has: its compute in forward, before anything can run beside it, and its sums
/// in the backward, behind which nothing computes.
double first_seconds(const Chain& chain, int choice);
/// The same of the last node: its sums in forward, its compute in the backward, its share of the step.
double last_seconds(const Chain& chain, int choice);
/// What @p node and the next take together in both passes: in forward the sums of the earlier one, beside its own
/// compute and that of the later one; in the backward the reverse. With it goes the earlier one's share of the step.
double pair_seconds(const Chain& chain, std::size_t node, int choice, int next);

/// Of a micro-batch. @param choices by node.
double forward_seconds(const Chain& chain, std::span<const int> choices);
/// Forward and backward, and its share of what a step has once.
double chain_seconds(const Chain& chain, std::span<const int> choices);
/// Of a rank.
std::int64_t chain_bytes(const Chain& chain, std::span<const int> choices);

/// Seconds, bytes and choices together.
ChainAnswer answer_of(const Chain& chain, std::vector<int> choices);

}  // namespace strata
