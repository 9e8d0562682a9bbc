/// @file
/// The three protocols are NCCL's LL, LL128 and Simple: Hu et al., "Demystifying NCCL", 2025. Their data shares are
/// facts of the wire format; that latency falls to about a quarter and a half is NCCL's own table of hardware latencies
/// (0.6, 1.9, 3.4 µs on NVLink; 2.7, 4.0, 14 µs between nodes).

#include "cost/collective_formulas.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cost/peak_rate.hpp"

namespace strata {
namespace {

struct Protocol {
  double latency_share;
  double bandwidth_share;
};

/// Passes of the whole tensor over the slowest link, and rounds of latency.
struct Passes {
  double volume = 0.0;
  double rounds = 0.0;
};

Passes ring_passes(Collective kind, int p) {
  const double share = static_cast<double>(p - 1) / p;
  switch (kind) {
    case Collective::all_reduce: return {2.0 * share, 2.0 * (p - 1)};
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all: return {share, static_cast<double>(p - 1)};
    case Collective::broadcast:
    case Collective::reduce: return {1.0, static_cast<double>(p - 1)};
    case Collective::send:
    case Collective::recv: return {1.0, 1.0};
  }
  return {};
}

/// A group on the nodes of one leaf switch has its NICs' bandwidth; one under several what the spine leaves of it when
/// all nodes of a leaf send at once.
double inter_node_bandwidth(const Factor& group, int leaves, const Cluster& cluster) {
  const bool crosses_leaves =
      leaves > 0 ? leaves > 1 : cluster.nodes_per_leaf > 0 && group.nodes > cluster.nodes_per_leaf;
  return effective_bandwidth(cluster.inter_node) * nics_used(group, cluster) /
         (crosses_leaves ? cluster.spine_oversubscription : 1.0);
}

constexpr Protocol protocols[] = {{0.25, 0.5}, {0.5, 120.0 / 128.0}, {1.0, 1.0}};

double least(double latency_seconds, double transfer_seconds) {
  double best = INFINITY;
  for (const Protocol& p : protocols) {
    best = std::min(best, p.latency_share * latency_seconds + transfer_seconds / p.bandwidth_share);
  }
  return best;
}

/// A ring of several nodes: where the cluster says what a hop takes, that is no matter of the protocol.
double least_of_ring(double rounds, double links_seconds, double transfer_seconds, const Cluster& cluster) {
  if (cluster.ring_hop_seconds > 0.0) return rounds * cluster.ring_hop_seconds + transfer_seconds;
  return least(rounds * links_seconds, transfer_seconds);
}

/// Rings through all members; between nodes as many at a time as there are NICs, so that a node's NICs share the
/// volume.
double flat_ring(Collective kind, double bytes, const Factor& group, int leaves, const Link& link,
                 const Cluster& cluster) {
  const Passes passes = ring_passes(kind, group.total());
  const double inside = group.in_node > 1 ? effective_bandwidth(link) : INFINITY;
  const double between = group.nodes > 1 ? inter_node_bandwidth(group, leaves, cluster) : INFINITY;
  // Of the links of a lap, one a node leaves it.
  const double between_share = group.nodes > 1 ? 1.0 / group.in_node : 0.0;
  const double links_seconds =
      between_share * cluster.inter_node.latency_seconds + (1.0 - between_share) * link.latency_seconds;
  const double transfer_seconds = passes.volume * bytes / std::min(inside, between);
  return group.nodes > 1 ? least_of_ring(passes.rounds, links_seconds, transfer_seconds, cluster)
                         : least(passes.rounds * links_seconds, transfer_seconds);
}

/// Two complementary binary trees, so that every node is inner in one of them: full bandwidth, logarithmic latency.
double double_tree(double bytes, const Factor& group, int leaves, const Link& link, const Cluster& cluster) {
  const double inside = group.in_node > 1 ? effective_bandwidth(link) : INFINITY;
  const double latency = 2.0 * (std::ceil(std::log2(group.nodes)) * cluster.inter_node.latency_seconds +
                                (group.in_node - 1) * link.latency_seconds);
  const double bandwidth = std::min(inside, inter_node_bandwidth(group, leaves, cluster));
  return least(latency, 2.0 * bytes / bandwidth);
}

/// Every member reduces 1/in_node of the tensor with its counterparts on the other nodes.
double hierarchical(double bytes, const Factor& group, int leaves, const Link& link, const Cluster& cluster) {
  const Factor inside{group.in_node, 1};
  const double within = flat_ring(Collective::reduce_scatter, bytes, inside, 1, link, cluster) +
                        flat_ring(Collective::all_gather, bytes, inside, 1, link, cluster);
  const Passes passes = ring_passes(Collective::all_reduce, group.nodes);
  const double transfer_seconds = passes.volume * bytes / inter_node_bandwidth(group, leaves, cluster);
  return within + least_of_ring(passes.rounds, cluster.inter_node.latency_seconds, transfer_seconds, cluster);
}

}  // namespace

int ring_steps(Collective kind, int num_members) {
  if (kind == Collective::send || kind == Collective::recv) return 1;
  return (kind == Collective::all_reduce ? 2 : 1) * (num_members - 1);
}

double ring_seconds(Collective kind, std::int64_t bytes, int num_members, double alpha_seconds,
                    double beta_seconds_per_byte) {
  if (num_members <= 1) return 0.0;
  const bool whole = kind == Collective::send || kind == Collective::recv;
  const double step_bytes = static_cast<double>(bytes) / (whole ? 1 : num_members);
  // A broadcast's p pieces follow one another: p-1 steps until the last rank has the first, p-1 more for the rest. A
  // reduce's do so the other way round.
  const int steps = is_rooted(kind) ? 2 * (num_members - 1) : ring_steps(kind, num_members);
  return steps * (alpha_seconds + step_bytes * beta_seconds_per_byte);
}

double nccl_like_seconds(Collective kind, std::int64_t bytes, const Factor& group, const Link& inside,
                         const Cluster& cluster, int leaves) {
  if (group.total() <= 1) return 0.0;
  const auto v = static_cast<double>(bytes);
  double best = flat_ring(kind, v, group, leaves, inside, cluster);
  if (kind == Collective::all_reduce && group.nodes > 1) {
    best = std::min(best, double_tree(v, group, leaves, inside, cluster));
    if (group.in_node > 1) best = std::min(best, hierarchical(v, group, leaves, inside, cluster));
  }
  return best;
}

const Link& intra_link(const Cluster& cluster, std::span<const int> devices) {
  const auto between = [&](int a, int b) -> const Link& {
    const auto found = std::ranges::find_if(
        cluster.pairs, [&](const PairLink& pair) { return std::minmax(pair.first, pair.second) == std::minmax(a, b); });
    return found == cluster.pairs.end() ? cluster.intra_node : found->link;
  };
  const Link* slowest = nullptr;
  for (std::size_t i = 0; i < devices.size() && devices.size() > 1; ++i) {
    const Link& link = between(devices[i], devices[(i + 1) % devices.size()]);
    if (slowest == nullptr || effective_bandwidth(link) < effective_bandwidth(*slowest)) slowest = &link;
  }
  return slowest == nullptr ? cluster.intra_node : *slowest;
}

int nics_used(const Factor& group, const Cluster& cluster) {
  return group.nodes > 1 ? std::min(group.in_node, cluster.nics_per_node) : 0;
}

}  // namespace strata
