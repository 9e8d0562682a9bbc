/// @file
/// This file finds out which ranks share a node, and implements the control plane's exchanges over MPI.

#include "comm/world.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <fstream>
#include <limits>
#include <map>

#include "comm/mpi/mpi_check.hpp"
#include "comm/sleeping_wait.hpp"

namespace strata::comm {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::uint64_t network_namespace_inode() {
  struct stat status {};
  if (stat("/proc/self/ns/net", &status) != 0) {
    return 0;  // a kernel without network namespaces: the name alone tells nodes apart
  }
  return status.st_ino;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

int to_count(std::size_t num_bytes) {
  STRATA_INVARIANT(num_bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
                   fmt::format("{} bytes exceed MPI's count", num_bytes));
  return static_cast<int>(num_bytes);
}

}  // namespace

struct World::Communicator {
  MPI_Comm handle = MPI_COMM_NULL;
};

World::World(const WorldOptions& options) : communicator_(std::make_unique<Communicator>()) {
  communicator_->handle = duplicate_sleeping(MPI_COMM_WORLD, nullptr);  // peers are not known yet
  int size = 0;
  check(MPI_Comm_rank(communicator_->handle, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(communicator_->handle, &size), "MPI_Comm_size");
  nodes_.assign(static_cast<std::size_t>(size), 0);
  identify(options);
  if (options.pretended_ranks_per_node == 0) {
    cross_check();
  }
  watch_peers();
}

World::World(const World& other, SameRanks)
    : communicator_(std::make_unique<Communicator>()),
      rank_(other.rank_),
      nodes_(other.nodes_),
      node_names_(other.node_names_),
      process_ids_(other.process_ids_),
      one_machine_(other.one_machine_),
      topology_note_(other.topology_note_) {
  communicator_->handle = duplicate_sleeping(other.communicator_->handle, &other);
  watch_peers();
}

std::unique_ptr<const World> World::duplicate() const {
  return std::unique_ptr<const World>(new World(*this, SameRanks{}));
}

World::~World() {
  for (const int handle : peer_handles_) {
    close(handle);
  }
  if (std::uncaught_exceptions() == 0) {
    MPI_Comm_free(&communicator_->handle);
  }
}

void World::identify(const WorldOptions& options) {
  const std::string name = options.node_name.empty() ? host_name() : options.node_name;
  const std::vector<std::string> all =
      all_gather(fmt::format("{}\t{}\t{}\t{}", boot_id(), getpid(), name, network_namespace_inode()));
  std::map<std::string, int> node_of_identity;
  std::map<std::string, int> num_with_name;
  process_ids_.clear();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string& text = all[rank];
    const std::size_t tab1 = text.find('\t');
    const std::size_t tab2 = text.find('\t', tab1 + 1);
    const std::size_t tab3 = text.find('\t', tab2 + 1);
    one_machine_ = one_machine_ && text.substr(0, tab1) == all[0].substr(0, all[0].find('\t'));
    process_ids_.push_back(std::stoi(text.substr(tab1 + 1, tab2 - tab1 - 1)));
    std::string identity = text.substr(tab2 + 1);
    std::string shown = text.substr(tab2 + 1, tab3 - tab2 - 1);
    if (options.pretended_ranks_per_node > 0) {
      const int pretended = static_cast<int>(rank) / options.pretended_ranks_per_node;
      identity += fmt::format("\t{}", pretended);
      shown += fmt::format("/pretended-{}", pretended);
    }
    const auto [entry, is_new] = node_of_identity.emplace(identity, static_cast<int>(node_names_.size()));
    if (is_new) {
      const int copies = num_with_name[shown]++;  // namespaces of one host share its name
      node_names_.push_back(copies == 0 ? shown : fmt::format("{}#{}", shown, copies));
    }
    nodes_[rank] = entry->second;
  }
}

void World::cross_check() {
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(communicator_->handle, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  int num_ranks = 0;
  check(MPI_Comm_size(node, &num_ranks), "MPI_Comm_size");
  check(MPI_Comm_free(&node), "MPI_Comm_free");
  if (num_ranks != ranks_on_node()) {
    topology_note_ =
        fmt::format("MPI_Comm_split_type counts {} ranks where node {} has {}", num_ranks,
                    node_names_[static_cast<std::size_t>(nodes_[static_cast<std::size_t>(rank_)])], ranks_on_node());
  }
}

void World::watch_peers() {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_ || node_of(rank) != node()) {
      continue;
    }
    const long handle = syscall(SYS_pidfd_open, process_ids_[static_cast<std::size_t>(rank)], 0);
    if (handle < 0) {
      throw CommunicationError(fmt::format("rank {} cannot watch rank {} (process {}) of its node: pidfd_open: {}",
                                           rank_, rank, process_ids_[static_cast<std::size_t>(rank)],
                                           std::generic_category().message(errno)));
    }
    peer_handles_.push_back(static_cast<int>(handle));
    peer_ranks_.push_back(rank);
  }
}

void World::check_peers() const {
  // A pidfd becomes readable when its process ends, also while the parent has not yet collected it (kill(pid, 0) would
  // still succeed on such a zombie).
  for (std::size_t i = 0; i < peer_handles_.size(); ++i) {
    pollfd entry{peer_handles_[i], POLLIN, 0};
    if (poll(&entry, 1, 0) > 0) {
      throw CommunicationError(fmt::format("rank {} on node {} is gone: its process {} has ended", peer_ranks_[i],
                                           node_names_[static_cast<std::size_t>(node())],
                                           process_id_of(peer_ranks_[i])));
    }
  }
}

int World::local_rank_of(int rank) const {
  return static_cast<int>(std::count(nodes_.begin(), nodes_.begin() + rank, node_of(rank)));
}

int World::ranks_on_node(int node) const { return static_cast<int>(std::count(nodes_.begin(), nodes_.end(), node)); }

std::string World::broadcast(const std::string& text, int root) const {
  auto length = static_cast<unsigned long long>(text.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibcast(&length, 1, MPI_UNSIGNED_LONG_LONG, root, communicator_->handle, &request), "MPI_Ibcast");
  wait_sleeping(request, this);
  std::string result = rank_ == root ? text : std::string(length, '\0');
  check(MPI_Ibcast(result.data(), to_count(length), MPI_CHAR, root, communicator_->handle, &request), "MPI_Ibcast");
  wait_sleeping(request, this);
  return result;
}

std::vector<std::string> World::gather(std::string_view bytes, int root) const {
  const int length = to_count(bytes.size());
  const bool here = rank_ == root;
  std::vector<int> lengths(here ? nodes_.size() : 0);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Igather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, root, communicator_->handle, &request),
        "MPI_Igather");
  wait_sleeping(request, this);
  std::vector<int> offsets(lengths.size());
  std::size_t total = 0;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    offsets[rank] = to_count(total);
    total += static_cast<std::size_t>(lengths[rank]);
  }
  to_count(total);
  std::string joined(total, '\0');
  check(MPI_Igatherv(bytes.data(), length, MPI_CHAR, joined.data(), lengths.data(), offsets.data(), MPI_CHAR, root,
                     communicator_->handle, &request),
        "MPI_Igatherv");
  wait_sleeping(request, this);
  std::vector<std::string> result;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    result.push_back(joined.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(lengths[rank])));
  }
  return result;
}

std::vector<std::string> World::all_gather(std::string_view bytes) const {
  const int length = to_count(bytes.size());
  std::vector<int> lengths(nodes_.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, communicator_->handle, &request),
        "MPI_Iallgather");
  wait_sleeping(request, nullptr);  // also called before the peers are known
  std::vector<int> offsets(lengths.size());
  std::size_t total = 0;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    offsets[rank] = to_count(total);
    total += static_cast<std::size_t>(lengths[rank]);
  }
  std::string joined(total, '\0');
  check(MPI_Iallgatherv(bytes.data(), length, MPI_CHAR, joined.data(), lengths.data(), offsets.data(), MPI_CHAR,
                        communicator_->handle, &request),
        "MPI_Iallgatherv");
  wait_sleeping(request, this);
  std::vector<std::string> result;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    result.push_back(joined.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(lengths[rank])));
  }
  return result;
}

namespace {
void all_reduce(std::span<double> values, MPI_Op operation, MPI_Comm communicator, const World& world) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, operation,
                       communicator, &request),
        "MPI_Iallreduce");
  wait_sleeping(request, &world);
}
}  // namespace

void World::all_reduce_sum(std::span<double> values) const {
  all_reduce(values, MPI_SUM, communicator_->handle, *this);
}
void World::all_reduce_min(std::span<double> values) const {
  all_reduce(values, MPI_MIN, communicator_->handle, *this);
}
void World::all_reduce_max(std::span<double> values) const {
  all_reduce(values, MPI_MAX, communicator_->handle, *this);
}

void World::barrier() const {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(communicator_->handle, &request), "MPI_Ibarrier");
  wait_sleeping(request, this);
}

}  // namespace strata::comm
