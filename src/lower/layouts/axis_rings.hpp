#pragma once

/// @file
/// Rings of ranks that differ along a set of axes alone: each passes blocks on to the next one, the last to the first
/// (lower/layouts/ring_product). Every ring has two streams, as messages to a neighbour and from the other run side by
/// side, and a group of its own, whose messages nobody else's come between.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lower/layouts/laid_out_graph.hpp"
#include "lower/step/builder.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// As one of its ranks sees it.
struct AxisRing {
  int size = 1;
  int index = 0;      ///< the rank's, which is that in the group, too
  int group = -1;     ///< of the Program
  int sends = -1;     ///< stream of messages to the next rank
  int receives = -1;  ///< stream of messages from the rank before

  int next() const { return (index + 1) % size; }
  int before() const { return (index + size - 1) % size; }
};

/// Different sets of axes along which products of @p model pass blocks on, the same on all ranks.
std::set<AxisSet> ring_axes(const LaidOutGraph& model);

/// Names of the streams of all rings of @p rank, two each: to the next one, and from the one before. A message has one
/// name at both its ends.
std::vector<std::string> ring_streams(const AtomicAxes& axes, const LaidOutGraph& model, int rank);

class AxisRings {
 public:
  /// Adds a group for every ring. @param first_stream number of the first of ring_streams().
  AxisRings(const AtomicAxes& axes, const LaidOutGraph& model, int rank, int first_stream, ProgramBuilder& builder);

  const AxisRing& of(AxisSet axes) const { return rings_.at(axes); }

 private:
  std::map<AxisSet, AxisRing> rings_;
};

}  // namespace strata
