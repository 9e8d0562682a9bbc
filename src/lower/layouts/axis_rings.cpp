#include "lower/layouts/axis_rings.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace strata {
namespace {

/// Axes of a ring → in how many directions some product passes blocks on.
std::map<AxisSet, int> directions_of_rings(const LaidOutGraph& model) {
  std::map<AxisSet, int> directions;
  for (const RingBlocks& blocks : model.rings) {
    int& most = directions[blocks.axes];
    most = std::max(most, blocks.directions);
  }
  return directions;
}

}  // namespace

std::set<AxisSet> ring_axes(const LaidOutGraph& model) {
  std::set<AxisSet> sets;
  for (const RingBlocks& blocks : model.rings) sets.insert(blocks.axes);
  return sets;
}

int num_ring_streams(const LaidOutGraph& model) {
  int streams = 0;
  for (const auto& [axes, directions] : directions_of_rings(model)) streams += 2 * directions;
  return streams;
}

std::vector<std::string> ring_streams(const AtomicAxes& axes, const LaidOutGraph& model, int rank) {
  std::vector<std::string> streams;
  for (const auto& [set, directions] : directions_of_rings(model)) {
    const AxisRing ring{.size = axes.num_ranks(set), .index = axes.index(set, rank)};
    for (int direction = 0; direction < directions; ++direction) {
      streams.push_back(fmt::format("ring[{:x}]{}to{}", set, ring.index, ring.behind(direction, 1)));
      streams.push_back(fmt::format("ring[{:x}]{}to{}", set, ring.before(direction, 1), ring.index));
    }
  }
  return streams;
}

AxisRings::AxisRings(const AtomicAxes& axes, const LaidOutGraph& model, int rank, int first_stream,
                     ProgramBuilder& builder) {
  for (const auto& [set, directions] : directions_of_rings(model)) {
    AxisRing& ring =
        rings_[set] = {.size = axes.num_ranks(set), .index = axes.index(set, rank), .first_stream = first_stream};
    for (int direction = 0; direction < directions; ++direction) {
      ring.groups[static_cast<std::size_t>(direction)] =
          builder.add_group({fmt::format("ring[{:x}]{}", set, direction == 0 ? "" : "back"), axes.group(set, rank)});
    }
    first_stream += 2 * directions;
  }
}

}  // namespace strata
