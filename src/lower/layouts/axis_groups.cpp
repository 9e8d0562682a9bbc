#include "lower/layouts/axis_groups.hpp"

#include <fmt/core.h>

#include <set>

#include "base/error.hpp"
#include "lower/layouts/layout_collectives.hpp"

namespace strata {

AxisGroups::AxisGroups(const AtomicAxes& axes, const LaidOutGraph& model, int rank, ProgramBuilder& builder)
    : all_(axes.all()) {
  std::set<AxisSet> sets = communicating_axes(model);
  const bool is_everybody = model.stages.size() == 1;
  if (is_everybody) sets.insert(all_);
  for (const AxisSet set : sets) {
    std::vector<int> ranks = axes.group(set, rank);
    if (ranks.size() == 1) {
      groups_[set] = -1;
      continue;
    }
    const bool is_all = is_everybody && set == all_;
    groups_[set] = builder.add_group({is_all ? "all" : fmt::format("axes[{:x}]", set), std::move(ranks)});
  }
}

int AxisGroups::of(AxisSet axes) const {
  const auto found = groups_.find(axes);
  STRATA_INVARIANT(found != groups_.end(), fmt::format("no group over the axes {:x}", axes));
  return found->second;
}

}  // namespace strata
