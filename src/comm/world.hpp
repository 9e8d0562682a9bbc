#pragma once

/// @file
/// Who is here: ranks, nodes, processes; and the control plane: small, rare exchanges outside measured steps. The
/// decision: nothing here spins. Every call is a non-blocking MPI operation and a poll that sleeps in between, so a
/// rank that waits leaves its core to the others, and notices within a second when a rank of its own node has died.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::comm {

struct WorldOptions {
  std::string node_name;             ///< SLURMD_NODENAME where the launcher sets it; empty: the host name
  int pretended_ranks_per_node = 0;  ///< tests: cut one host into nodes of this many ranks; 0: the truth
};

/// MPI_COMM_WORLD, duplicated. Every member but rank() and local_rank() is equal on all ranks of the place it
/// describes. Calls are collective over all ranks and made by one thread.
class World {
 public:
  /// A node is (node name, inode of /proc/self/ns/net): several network namespaces of one host are several nodes.
  explicit World(const WorldOptions& options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The same ranks and nodes, for calls of another thread meanwhile. Collective.
  std::unique_ptr<const World> duplicate() const;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  int num_nodes() const { return static_cast<int>(node_names_.size()); }
  int node() const { return node_of(rank_); }
  int node_of(int rank) const { return nodes_.at(static_cast<std::size_t>(rank)); }
  /// Order within the node, by world rank. The launcher's local rank is not trusted.
  int local_rank() const { return local_rank_of(rank_); }
  int local_rank_of(int rank) const;
  int ranks_on_node(int node) const;
  int ranks_on_node() const { return ranks_on_node(node()); }
  const std::vector<std::string>& node_names() const { return node_names_; }
  /// Whether all ranks run under one kernel, so that CLOCK_MONOTONIC is one clock for all.
  bool one_machine() const { return one_machine_; }
  /// What MPI_Comm_split_type says, where it disagrees with node(); empty where it agrees. For the log, not an error:
  /// that call takes the network namespaces of one host for one node.
  const std::string& topology_note() const { return topology_note_; }

  std::string broadcast(const std::string& text, int root = 0) const;
  /// Every rank's bytes, by rank, on @p root; empty elsewhere.
  std::vector<std::string> gather(std::string_view bytes, int root = 0) const;
  std::vector<std::string> all_gather(std::string_view bytes) const;
  void all_reduce_sum(std::span<double> values) const;
  void all_reduce_min(std::span<double> values) const;
  void all_reduce_max(std::span<double> values) const;
  void barrier() const;

  /// @throws CommunicationError naming a rank of this node whose process has ended; cheap enough for every 0.1 s.
  void check_peers() const;
  int process_id_of(int rank) const { return process_ids_.at(static_cast<std::size_t>(rank)); }

 private:
  struct Communicator;
  struct SameRanks {};
  World(const World& other, SameRanks);
  void identify(const WorldOptions& options);
  void cross_check();
  void watch_peers();
  std::unique_ptr<Communicator> communicator_;
  int rank_ = 0;
  std::vector<int> nodes_;  ///< by rank
  std::vector<std::string> node_names_;
  std::vector<int> process_ids_;   ///< by rank
  std::vector<int> peer_handles_;  ///< pidfd of each other rank of this node
  std::vector<int> peer_ranks_;    ///< the rank of each handle
  bool one_machine_ = true;
  std::string topology_note_;
};

}  // namespace strata::comm
