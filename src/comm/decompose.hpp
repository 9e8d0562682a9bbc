#pragma once

/// @file
/// Which primitives make an operation. Flat groups need one (all-reduce over MPI: two); a two-level group reduces and
/// gathers inside the node through shared memory, so that each byte crosses the network once a node.
///
/// | operation | two-level sequence |
/// | all_reduce | reduce-scatter inside, reduce-scatter + all-gather across, all-gather inside |
/// | reduce_scatter | for each slice: one reduce-scatter inside for every node's part, one across |
/// | all_gather | all-gather across, then one inside for every node's part |
/// | all_to_all | the own node's part inside, the rest across |
/// | broadcast | across from the root, then inside |
/// | reduce | for each slice: inside to the root's place, then across to the root |
/// | send, recv | inside or across |

#include <optional>

#include "comm/group.hpp"
#include "comm/request.hpp"

namespace strata::comm {

/// A node's reduce-scatter or reduce keeps this many elements a node of the group between its two levels.
constexpr std::int64_t kWorkspaceElements = 64 * 1024;

/// Primitive number @p index of @p request, or nothing after the last. The group has at least two members and the
/// request at least one element. @p channel: the operation's channel in the group.
std::optional<Primitive> primitive_of(const Request& request, const Group& group, int channel, int index);

}  // namespace strata::comm
