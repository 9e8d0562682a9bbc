#pragma once

/// @file
/// Closed forms of collectives by α–β. v bytes is always the full tensor, p members.

#include <cstdint>
#include <span>

#include "base/collective.hpp"
#include "ir/machine/cluster.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Steps of a ring: (p-1) for one pass, 2 (p-1) for an all-reduce; 1 for a message; 0 for one member.
int ring_steps(Collective kind, int num_members);

/// ring_steps · (α + v/p · β); a broadcast passes v in p pieces down the ring, a reduce up, a message is α + v β.
/// Sources: OSDP sec. 3.1 ((N-1)(α + S/N β) a pass), AutoDDL sec. 3.2.
double ring_seconds(Collective kind, std::int64_t bytes, int num_members, double alpha_seconds,
                    double beta_seconds_per_byte);

/// The best that NCCL-like libraries do on @p cluster for a group of `in_node` ranks on each of `nodes` nodes, with the
/// network to itself: the least of flat rings over all NICs of the members, a double binary tree over nodes, and, where
/// it exists, reduce-scatter inside, all-reduce between, all-gather inside the nodes; each by the least of three
/// protocols that trade latency for bandwidth (8 of 16 bytes are data at a quarter of the latency, 120 of 128 at half);
/// a ring over nodes by what @p cluster says of a hop, where it does (ring_hop_seconds).
/// @param inside the link between the members of a node, see intra_link(). @param leaves see Placement.
double nccl_like_seconds(Collective kind, std::int64_t bytes, const Factor& group, const Link& inside,
                         const Cluster& cluster, int leaves = 0);

/// The slowest link of a ring through @p devices of a node in their order: a pair's own link where the cluster lists
/// one, else the node's. Fewer than two devices: the node's.
const Link& intra_link(const Cluster& cluster, std::span<const int> devices);

/// NICs of a node that such a group keeps busy; 0 inside a node.
int nics_used(const Factor& group, const Cluster& cluster);

}  // namespace strata
