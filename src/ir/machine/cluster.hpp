#pragma once

/// @file
/// What machine: nodes × devices, memory, peaks, links. Data only, read from experiments/clusters/<name>.toml; every
/// number a planner, the simulator or the MFU needs to know about hardware reaches it through this value.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// α–β of a link: a message of v bytes takes latency_seconds + v / bandwidth_bytes_per_second.
struct Link {
  double latency_seconds = 0.0;
  double bandwidth_bytes_per_second = 0.0;            ///< one direction, nameplate
  double effective_bandwidth_bytes_per_second = 0.0;  ///< what collectives reach, measured or fitted; 0: unknown
  bool operator==(const Link&) const = default;
};

/// A pair of devices of one node whose link differs from the node's default (NVLink pairs).
struct PairLink {
  int first = 0;
  int second = 0;
  Link link;
  bool operator==(const PairLink&) const = default;
};

struct Cluster {
  std::string name;
  std::string description;
  int nodes = 1;
  int devices_per_node = 1;
  std::string device;  ///< e.g. "A800-SXM4-80GB"; "cpu": whatever CPUs
  std::int64_t device_memory_bytes = 0;
  /// Of these what a rank's process holds whatever its Program is: context, libraries, communicators, and what an
  /// allocator and a framework keep beside tensors.
  std::int64_t runtime_memory_bytes = 0;
  std::map<std::string, double> peak_flops_per_second;  ///< by dtype name: f32, bf16, tf32
  /// What training reaches of that, measured or fitted, by dtype name; absent: the cost model's own efficiencies apply.
  std::map<std::string, double> effective_flops_per_second;
  double memory_bandwidth_bytes_per_second = 0.0;
  Link intra_node;
  std::vector<PairLink> pairs;  ///< exceptions to intra_node
  Link inter_node;              ///< one NIC, one direction
  int nics_per_node = 1;
  int nodes_per_leaf = 0;               ///< 0: one flat network
  double spine_oversubscription = 1.0;  ///< leaf uplink share: 2.0 halves bandwidth across leaves
  /// A hop of a ring over several nodes, whatever the protocol, where more than the links' latencies is known to pass
  /// between two ranks; 0: the links' latencies, of which a protocol takes its share.
  double ring_hop_seconds = 0.0;
  double step_overhead_seconds = 0.0;  ///< what every training step takes beside kernels and transfers
  /// Where a rank computes and communicates at once, each takes so many times as long as alone: they share the device's
  /// memory and, on a GPU, its multiprocessors.
  double compute_slowdown = 1.0;
  double communication_slowdown = 1.0;
  std::map<std::string, std::string> sources;  ///< key -> where the number comes from
  bool operator==(const Cluster&) const = default;
};

/// Its ranks compute on CPUs, by this program's own kernels.
bool computes_on_cpus(const Cluster& cluster);
/// The leaf switch of each of @p nodes, by number from 0: node n of the cluster hangs under leaf n / nodes_per_leaf.
/// Empty where the network is flat.
std::vector<int> leaves_of(const Cluster& cluster, std::span<const int> nodes);
/// @throws UserError naming the key and both numbers where a description contradicts itself.
void verify(const Cluster& cluster);
/// Stable TOML; parse_cluster(to_text(c)) == c.
std::string to_text(const Cluster& cluster);
/// The section [transformer_costs] is read past: it belongs to the Python package, which checks it.
/// @throws UserError with file, line, key and what is accepted.
Cluster parse_cluster(const std::string& text, std::string_view file_name);

}  // namespace strata
