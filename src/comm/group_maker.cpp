/// @file
/// Members of a new group agree here on its number and its transport, and map the memory that they share.

#include "comm/group_maker.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/random.hpp"
#include "comm/collective_error.hpp"
#include "comm/control_tags.hpp"
#include "comm/decompose.hpp"
#include "comm/sleeping_wait.hpp"
#include "comm/world.hpp"

namespace strata::comm {
namespace {

/// Where a shared segment is.
struct SegmentAddress {
  std::int64_t process_id = 0;
  std::int64_t descriptor = 0;
};

}  // namespace

std::string Group::ranks_text() const {
  std::string text;
  for (const int rank : all.world_ranks) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", rank);
  }
  return text;
}

GroupMaker::GroupMaker(const World& world, MPI_Comm control, const EngineOptions& options)
    : world_(world),
      control_(control),
      transport_(options.transport),
      link_(options.emulated_link),
      nodes_(options.emulated_nodes),
      rank_(world.rank()) {
  if (transport_ != "auto" && transport_ != "mpi" && transport_ != "shm" && transport_ != "two_level") {
    throw UserError(fmt::format("transport \"{}\" is not one of auto, mpi, shm, two_level", transport_));
  }
  if (link_) check_emulation();
  int* tag_limit = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(control_, MPI_TAG_UB, static_cast<void*>(&tag_limit), &found), "MPI_Comm_get_attr");
  max_tag_ = found != 0 ? *tag_limit : 32767;
  map_doorbells();
}

void GroupMaker::check_emulation() const {
  const auto check_times = [](const EmulatedLink& link) {
    if (link.alpha_seconds >= 0.0 && link.beta_seconds_per_byte >= 0.0) return;
    throw UserError(fmt::format("emulated link: alpha {} s and beta {} s/byte must not be negative", link.alpha_seconds,
                                link.beta_seconds_per_byte));
  };
  check_times(*link_);
  if (nodes_) {
    check_times(nodes_->inside);
    if (nodes_->ranks_per_node < 1 || world_.size() % nodes_->ranks_per_node != 0) {
      throw UserError(
          fmt::format("{} ranks are no whole number of nodes of {} ranks", world_.size(), nodes_->ranks_per_node));
    }
  }
  if (!world_.one_machine()) {
    throw Unsupported("an emulated link needs all ranks on one machine: its times are those of one clock");
  }
  if (transport_ != "auto" && transport_ != "mpi") {
    throw UserError(fmt::format("an emulated link stands in front of transport mpi, not {}", transport_));
  }
}

void GroupMaker::map_doorbells() {
  std::vector<int> neighbours;
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (world_.node_of(rank) == world_.node()) {
      neighbours.push_back(rank);
    }
  }
  const auto num_bytes = static_cast<std::int64_t>(neighbours.size() * sizeof(Doorbell));
  const bool leads = neighbours.front() == rank_;
  if (leads) {
    node_segment_ = SharedSegment::create(num_bytes);
  }
  const auto descriptors = world_.all_gather(std::to_string(node_segment_.descriptor()));
  // After this everybody has opened it, and the leader may close what it was opened by.
  on_all_ranks(world_, [&] {
    if (leads) return;
    try {
      const int leader = neighbours.front();
      node_segment_ = SharedSegment::open(world_.process_id_of(leader),
                                          std::stoi(descriptors[static_cast<std::size_t>(leader)]), num_bytes);
    } catch (const CommunicationError& failure) {
      throw CommunicationError(fmt::format("rank {}: {}", rank_, failure.what()));
    }
  });
  node_segment_.close_descriptor();
  doorbells_.assign(static_cast<std::size_t>(world_.size()), nullptr);
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    doorbells_[static_cast<std::size_t>(neighbours[i])] = reinterpret_cast<Doorbell*>(node_segment_.data()) + i;
  }
}

bool GroupMaker::on_one_node(const std::vector<int>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return world_.node_of(rank) == world_.node_of(ranks.front()); });
}

/// Members come node by node, the same number on each.
bool GroupMaker::is_regular(const std::vector<int>& ranks, int& ranks_per_node) const {
  const int first_node = world_.node_of(ranks.front());
  ranks_per_node = static_cast<int>(
      std::count_if(ranks.begin(), ranks.end(), [&](int rank) { return world_.node_of(rank) == first_node; }));
  if (static_cast<int>(ranks.size()) % ranks_per_node != 0) {
    return false;
  }
  std::set<int> seen;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int node = world_.node_of(ranks[i]);
    const bool begins = i % static_cast<std::size_t>(ranks_per_node) == 0;
    if (begins ? !seen.insert(node).second : node != world_.node_of(ranks[i - 1])) {
      return false;
    }
  }
  return true;
}

void GroupMaker::choose_transport(Group& group) const {
  const std::vector<int>& ranks = group.all.world_ranks;
  int ranks_per_node = 1;
  if (ranks.size() == 1) {
    group.transport = Transport::mpi;  // never used
    group.transport_name = "none";
  } else if (link_) {
    const auto words = [](const EmulatedLink& link) {
      return fmt::format("alpha={:g},beta={:g}", link.alpha_seconds, link.beta_seconds_per_byte);
    };
    group.transport = Transport::mpi;
    group.transport_name =
        fmt::format("emulated_link({}{}) over mpi", words(*link_), nodes_ ? "; inside " + words(nodes_->inside) : "");
  } else if (transport_ == "mpi") {
    group.transport = Transport::mpi;
    group.transport_name = "mpi";
  } else if (on_one_node(ranks)) {
    group.transport = Transport::shared_memory;
    group.transport_name = "shm";
  } else if (transport_ == "shm") {
    throw Unsupported(fmt::format(
        "transport shm joins ranks of one node, but group {} spans several (rank {} on {}, "
        "rank {} on {})",
        group.ranks_text(), ranks.front(), world_.node_names()[static_cast<std::size_t>(world_.node_of(ranks.front()))],
        ranks.back(), world_.node_names()[static_cast<std::size_t>(world_.node_of(ranks.back()))]));
  } else if (is_regular(ranks, ranks_per_node)) {
    group.transport = ranks_per_node == 1 ? Transport::mpi : Transport::two_level;
    group.transport_name = ranks_per_node == 1 ? "mpi" : "two_level(shm,mpi)";
    group.ranks_per_node = ranks_per_node;
  } else if (transport_ == "two_level") {
    throw Unsupported(
        fmt::format("transport two_level needs the members node by node and equally many on each; group {} is not",
                    group.ranks_text()));
  } else {
    group.transport = Transport::mpi;
    group.transport_name = "mpi";
  }
}

/// The largest id that any member has free, so that no two groups that share a member share a tag.
void GroupMaker::agree_on_id(Group& group) {
  const std::vector<int>& ranks = group.all.world_ranks;
  // The members' hash notices ranks that make different groups at the same time.
  std::array<std::int64_t, 2> mine{next_id_, static_cast<std::int64_t>(stream_of(group.ranks_text()))};
  MPI_Request request = MPI_REQUEST_NULL;
  const auto receive = [&](std::array<std::int64_t, 2>& message, int from) {
    check(MPI_Irecv(message.data(), 2, MPI_INT64_T, from, kGroupTag, control_, &request), "MPI_Irecv");
    wait_sleeping(request, &world_);
  };
  const auto send = [&](const std::array<std::int64_t, 2>& message, int to) {
    check(MPI_Isend(message.data(), 2, MPI_INT64_T, to, kGroupTag, control_, &request), "MPI_Isend");
    wait_sleeping(request, &world_);
  };
  if (group.all.index == 0) {
    for (std::size_t member = 1; member < ranks.size(); ++member) {
      std::array<std::int64_t, 2> theirs{};
      receive(theirs, ranks[member]);
      STRATA_INVARIANT(theirs[1] == mine[1], fmt::format("rank {} makes a different group where rank {} makes {}",
                                                         ranks[member], rank_, group.ranks_text()));
      mine[0] = std::max(mine[0], theirs[0]);
    }
    for (std::size_t member = 1; member < ranks.size(); ++member) {
      send(mine, ranks[member]);
    }
  } else {
    send(mine, ranks.front());
    receive(mine, ranks.front());
  }
  group.id = static_cast<int>(mine[0]);
  next_id_ = group.id + 1;
  if (max_tag_ / kTagsPerGroup <= group.id) {
    throw Unsupported(fmt::format("group number {} needs tag {}, but MPI's largest is {}", group.id,
                                  kTagsPerGroup * group.id + kTagsPerGroup - 1, max_tag_));
  }
}

/// The first member creates, the others open, the first closes its descriptor when all have.
std::unique_ptr<SharedArea> GroupMaker::share(const Members& members) const {
  const int num_members = members.size();
  const std::int64_t num_bytes = SharedArea::size_bytes(num_members);
  SharedSegment segment;
  MPI_Request request = MPI_REQUEST_NULL;
  SegmentAddress address;
  if (members.index == 0) {
    segment = SharedSegment::create(num_bytes);
    address = {getpid(), segment.descriptor()};
    for (int member = 1; member < num_members; ++member) {
      check(MPI_Isend(&address, 2, MPI_INT64_T, members.world_ranks[static_cast<std::size_t>(member)], kSegmentTag,
                      control_, &request),
            "MPI_Isend");
      wait_sleeping(request, &world_);
    }
    for (int member = 1; member < num_members; ++member) {
      check(MPI_Irecv(nullptr, 0, MPI_BYTE, members.world_ranks[static_cast<std::size_t>(member)], kSegmentTag,
                      control_, &request),
            "MPI_Irecv");
      wait_sleeping(request, &world_);
    }
    segment.close_descriptor();
  } else {
    check(MPI_Irecv(&address, 2, MPI_INT64_T, members.world_ranks.front(), kSegmentTag, control_, &request),
          "MPI_Irecv");
    wait_sleeping(request, &world_);
    segment =
        SharedSegment::open(static_cast<int>(address.process_id), static_cast<int>(address.descriptor), num_bytes);
    check(MPI_Isend(nullptr, 0, MPI_BYTE, members.world_ranks.front(), kSegmentTag, control_, &request), "MPI_Isend");
    wait_sleeping(request, &world_);
  }
  std::vector<Doorbell*> doorbells;
  for (const int rank : members.world_ranks) {
    doorbells.push_back(doorbells_[static_cast<std::size_t>(rank)]);
  }
  return std::make_unique<SharedArea>(std::move(segment), num_members, members.index, std::move(doorbells));
}

std::unique_ptr<Group> GroupMaker::make(const std::vector<int>& world_ranks) {
  auto group = std::make_unique<Group>();
  group->all.world_ranks = world_ranks;
  const auto me = std::find(world_ranks.begin(), world_ranks.end(), rank_);
  STRATA_INVARIANT(me != world_ranks.end(),
                   fmt::format("rank {} is no member of group {}", rank_, group->ranks_text()));
  STRATA_INVARIANT(std::set<int>(world_ranks.begin(), world_ranks.end()).size() == world_ranks.size(),
                   fmt::format("group {} names a rank twice", group->ranks_text()));
  group->all.index = static_cast<int>(me - world_ranks.begin());
  group->peers = std::vector<PeerOrder>(world_ranks.size());
  choose_transport(*group);
  if (world_ranks.size() == 1) {
    return group;
  }
  agree_on_id(*group);
  group->all.tag = group->id * kTagsPerGroup;
  if (group->transport == Transport::shared_memory) {
    group->area = share(group->all);
    group->all.area = group->area.get();
  } else if (group->transport == Transport::two_level) {
    const int width = group->ranks_per_node;
    group->num_nodes = group->all.size() / width;
    for (int i = 0; i < group->all.size(); ++i) {
      if (i / width == group->node_index()) {
        group->local.world_ranks.push_back(world_ranks[static_cast<std::size_t>(i)]);
      }
      if (i % width == group->place()) {
        group->column.world_ranks.push_back(world_ranks[static_cast<std::size_t>(i)]);
      }
    }
    group->local.index = group->place();
    group->column.index = group->node_index();
    group->column.tag = group->all.tag;  // one channel runs one of the two at a time, in the same order everywhere
    group->area = share(group->local);
    group->local.area = group->area.get();
    for (auto& workspace : group->workspace) {
      workspace = std::make_unique_for_overwrite<std::byte[]>(
          static_cast<std::size_t>(group->num_nodes * kWorkspaceElements * size_of(DType::f32)));
    }
  }
  return group;
}

}  // namespace strata::comm
