#pragma once

/// @file
/// The messages of a replica to the others of its ring, in its Program: their groups and streams. Sums, and parameters
/// of each kind of arrival, are in a group of their own, and each direction to each replica of that group is on a
/// stream of its own: none waits behind one of another kind, and both ends have those of a group in one order. So are
/// the tokens of replicas that keep their distance.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "partition/replica_ring.hpp"
#include "partition/ring_pace.hpp"

namespace strata {

/// In the names of groups and streams.
std::string_view word_of(Arrival arrival);

struct RingLinks {
  /// @param first_stream the number of the first of `streams`.
  /// @param of_pace none: the replicas wait for data alone.
  RingLinks(ReplicaRing of_ring, std::optional<RingPace> of_pace, int first_stream);

  int stream_of_sums(int from, int to) const;
  int stream_of_parameters(int from, int to, Arrival arrival) const;
  int stream_of_tokens(int from, int to) const;

  ReplicaRing ring;
  std::optional<RingPace> pace;
  std::vector<std::string> streams{};  ///< their names
  int sums_group = -1;
  int pace_group = -1;
  std::map<Arrival, int> groups{};  ///< of parameters; -1 until they are in the Program

 private:
  int number_of(const std::string& name) const;
  int first_stream_;
};

}  // namespace strata
