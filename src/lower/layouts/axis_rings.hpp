#pragma once

/// @file
/// Rings of ranks that differ along a set of axes alone: each passes blocks on to the next one, the last to the first,
/// and, where blocks go in both directions, others to the one before (lower/layouts/ring_product). A ring has two
/// streams and a group of its own a direction, as messages to a neighbour and from the other run side by side, and
/// nobody else's come between them.

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lower/layouts/laid_out_graph.hpp"
#include "lower/step/builder.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// As one of its ranks sees it. Direction 0 is to the next rank, direction 1 to the one before.
struct AxisRing {
  int size = 1;
  int index = 0;                      ///< the rank's, which is that in the group, too
  std::array<int, 2> groups{-1, -1};  ///< of the Program, by direction
  int first_stream = -1;  ///< of messages that leave in direction 0; those that come follow, then direction 1's

  /// Who is @p hops further in @p direction.
  int behind(int direction, int hops) const { return at(direction == 0 ? hops : -hops); }
  /// Whose messages in @p direction come here after @p hops.
  int before(int direction, int hops) const { return behind(1 - direction, hops); }
  int group(int direction) const { return groups[static_cast<std::size_t>(direction)]; }
  int sends(int direction) const { return first_stream + 2 * direction; }
  int receives(int direction) const { return sends(direction) + 1; }

 private:
  /// @param hops at most as many as there are ranks, either way.
  int at(int hops) const { return (index + hops + size) % size; }
};

/// Different sets of axes along which products of @p model pass blocks on, the same on all ranks.
std::set<AxisSet> ring_axes(const LaidOutGraph& model);

/// Of all rings.
int num_ring_streams(const LaidOutGraph& model);

/// Names of the streams of all rings of @p rank, of each direction two: to one neighbour, and from the other. A message
/// has one name at both its ends.
std::vector<std::string> ring_streams(const AtomicAxes& axes, const LaidOutGraph& model, int rank);

class AxisRings {
 public:
  /// Adds a group for every direction of a ring. @param first_stream number of the first of ring_streams().
  AxisRings(const AtomicAxes& axes, const LaidOutGraph& model, int rank, int first_stream, ProgramBuilder& builder);

  const AxisRing& of(AxisSet axes) const { return rings_.at(axes); }

 private:
  std::map<AxisSet, AxisRing> rings_;
};

}  // namespace strata
