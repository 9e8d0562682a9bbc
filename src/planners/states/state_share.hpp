#pragma once

/// @file
/// What of an operator's states is sharded, as one word for all ranks that hold copies of it, however many these are:
/// so that a plan of other degrees can hold its states the same way.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// ZeRO's stages.
enum class StateShare : std::uint8_t { none, optimizer, gradients, parameters };
inline constexpr StateShare state_shares[] = {StateShare::none, StateShare::optimizer, StateShare::gradients,
                                              StateShare::parameters};

/// "states replicated", "optimizer states", "gradients and optimizer states", "all states".
std::string_view to_string(StateShare share);

/// The factors of @p share over @p ranks; replicated where that is one rank.
StateFactors factors_of(StateShare share, const Factor& ranks);
/// What @p state shards, over however many ranks.
StateShare share_of(const StateFactors& state);
/// @p state of copies on @p from for copies on @p to, as legal as it was: what was over all copies or over those in a
/// node still is, and what was over fewer is over as many as divide both.
StateFactors carried_over(const StateFactors& state, const Factor& from, const Factor& to);

/// By operator: the ranks that hold copies of its parameters, those of p0 where it has a layout, else the data ranks.
/// @throws Unsupported where data ranks are no neighbours.
std::vector<Factor> copies_of_operators(const Mesh& mesh, std::span<const OperatorDecision> decisions);

}  // namespace strata
