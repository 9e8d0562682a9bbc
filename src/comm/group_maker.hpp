#pragma once

/// @file
/// Making groups: which transport, which tags, which shared memory. Agreement runs between the members alone, so
/// disjoint groups are made at the same time. Internal to src/comm.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/emulated/emulated_link.hpp"
#include "comm/engine.hpp"
#include "comm/group.hpp"
#include "comm/mpi/mpi_check.hpp"

namespace strata::comm {

class World;

class GroupMaker {
 public:
  /// Collective over @p world: maps one doorbell a rank on each node.
  /// @throws UserError unless the transport is one of the accepted names and what is emulated has times and ranks;
  /// Unsupported unless what is emulated has one clock.
  GroupMaker(const World& world, MPI_Comm control, const EngineOptions& options);

  std::unique_ptr<Group> make(const std::vector<int>& world_ranks);
  Doorbell& own_doorbell() const { return *doorbells_[static_cast<std::size_t>(rank_)]; }

 private:
  void check_emulation() const;
  void map_doorbells();
  void choose_transport(Group& group) const;
  void agree_on_id(Group& group);
  std::unique_ptr<SharedArea> share(const Members& members) const;
  bool on_one_node(const std::vector<int>& ranks) const;
  bool is_regular(const std::vector<int>& ranks, int& ranks_per_node) const;

  const World& world_;
  MPI_Comm control_;
  std::string transport_;
  std::optional<EmulatedLink> link_;
  std::optional<EmulatedNodes> nodes_;
  int rank_;
  int max_tag_ = 0;
  int next_id_ = 0;
  SharedSegment node_segment_;
  std::vector<Doorbell*> doorbells_;  ///< by world rank; null on other nodes
};

}  // namespace strata::comm
