#pragma once

/// @file
/// "How far are you?" between ranks, beside the data: what a watchdog asks before it blames somebody. Whoever is inside
/// the engine answers, also a rank whose own operations are all done.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/mpi/mpi_check.hpp"

namespace strata::comm {

struct PeerQuery {
  std::int32_t group_id = 0;
  std::int32_t kind = 0;   ///< 0: collectives posted; 1: sends posted to the asker; 2: receives posted from the asker
  std::int32_t asker = 0;  ///< index in the group
  std::int32_t unused = 0;
};

class PeerQueries {
 public:
  /// @p count answers a query on this rank; -1: I do not know that group.
  PeerQueries(MPI_Comm communicator, std::function<std::int64_t(const PeerQuery&)> count);
  ~PeerQueries();
  PeerQueries(const PeerQueries&) = delete;
  PeerQueries& operator=(const PeerQueries&) = delete;

  /// Answer what has come in.
  void serve();
  /// Ask @p ranks, and answer others meanwhile; nothing for those silent after @p patience_seconds. Called once: the
  /// job ends afterwards.
  std::vector<std::optional<std::int64_t>> ask(std::span<const int> ranks, const PeerQuery& query,
                                               double patience_seconds);

 private:
  void listen();
  MPI_Comm communicator_;
  std::function<std::int64_t(const PeerQuery&)> count_;
  PeerQuery incoming_;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::int64_t outgoing_ = 0;
  MPI_Request answering_ = MPI_REQUEST_NULL;

  PeerQuery question_;
  std::vector<std::int64_t> answers_;
  std::vector<MPI_Request> requests_;
};

}  // namespace strata::comm
