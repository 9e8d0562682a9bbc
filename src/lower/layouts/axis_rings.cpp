#include "lower/layouts/axis_rings.hpp"

#include <fmt/core.h>

namespace strata {

std::set<AxisSet> ring_axes(const LaidOutGraph& model) {
  std::set<AxisSet> sets;
  for (const RingBlocks& blocks : model.rings) sets.insert(blocks.axes);
  return sets;
}

std::vector<std::string> ring_streams(const AtomicAxes& axes, const LaidOutGraph& model, int rank) {
  std::vector<std::string> streams;
  for (const AxisSet set : ring_axes(model)) {
    const AxisRing ring{.size = axes.num_ranks(set), .index = axes.index(set, rank)};
    streams.push_back(fmt::format("ring[{:x}]{}to{}", set, ring.index, ring.next()));
    streams.push_back(fmt::format("ring[{:x}]{}to{}", set, ring.before(), ring.index));
  }
  return streams;
}

AxisRings::AxisRings(const AtomicAxes& axes, const LaidOutGraph& model, int rank, int first_stream,
                     ProgramBuilder& builder) {
  for (const AxisSet set : ring_axes(model)) {
    rings_[set] = {.size = axes.num_ranks(set),
                   .index = axes.index(set, rank),
                   .group = builder.add_group({fmt::format("ring[{:x}]", set), axes.group(set, rank)}),
                   .sends = first_stream,
                   .receives = first_stream + 1};
    first_stream += 2;
  }
}

}  // namespace strata
