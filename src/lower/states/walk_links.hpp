#pragma once

/// @file
/// The messages that bring parameters to a rank for a visit and away from it, in its Program: their groups and streams.
/// What owners send and what others hand on are in a group each, and each direction to each rank of a group is on a
/// stream of its own, so that both ends have the messages of a stream in one order, that of the visits.

#include <string>
#include <vector>

#include "partition/walking_parameters.hpp"

namespace strata {

struct WalkLinks {
  /// @param first_stream the number of the first of `streams`.
  WalkLinks(ParameterWalk of_rank, int first_stream);

  int stream_from_owner(int owner, int to) const;
  int stream_between(int from, int to) const;
  /// True of a visit whose parameters the owner sends.
  bool is_from_owner(const ParameterWalk::Visit& visit) const { return visit.from == walk.num_ranks - 1 - visit.stage; }

  ParameterWalk walk;
  std::vector<std::string> streams{};  ///< their names
  int owners_group = -1, readers_group = -1;

 private:
  int number_of(const std::string& name) const;
  int first_stream_;
};

}  // namespace strata
