#pragma once

/// @file
/// Of what ranks keep of a training, in copies or not, who gives which: each element of each state once.

#include <string_view>
#include <vector>

#include "comm/world.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/program/training_state.hpp"

namespace strata::run {

/// Where parameters are read in two versions, the one before the value.
inline constexpr std::string_view previous_state = "previous";

/// The optimizer's and, where there is one, the version before the value.
std::vector<KeptPart::State> all_states(const KeptPart& part);

/// A state of a part that this rank has.
struct AssignedState {
  const KeptPart* part = nullptr;
  KeptPart::State state;
};

/// Collective. Copies are given by the first rank that has them. Shards of a parameter, or of some of its columns, are
/// equal or do not overlap.
/// @param parts of this rank, which outlive the result.
/// @return what this rank gives. @throws InternalError unless all elements of a state are given once.
std::vector<AssignedState> assign_states(const comm::World& world, const ModelGraph& graph,
                                         const std::vector<KeptPart>& parts);

}  // namespace strata::run
