#pragma once

/// @file
/// What a mode says where it has to compare plans and nobody knows what they cost.

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "planners/planner.hpp"

namespace strata {

/// @param what the cluster lacks. @param instead what the user may set so that there is nothing to compare.
/// @throws CostsUnknown, and nothing else.
[[noreturn]] inline void refuse_without_costs(const PlanRequest& request, std::string_view what,
                                              std::string_view instead) {
  const std::string& name = request.cluster.name;
  const auto& cost = request.option<std::string>("cost");
  const char* const otherwise =
      cost == "measured" ? "`strata profile` makes one, for simulate.profile"
      : name == "this"
          ? "`strata run` measures this machine before it plans; or name a described cluster, or have a profile"
          : "name a cluster that has it";
  throw CostsUnknown(fmt::format("{} on {} ranks: cost = \"{}\" needs {}, and cluster {} has none: {}, or {}",
                                 request.base.strategy, request.base.mesh.num_ranks(), cost, what,
                                 name.empty() ? "(unnamed)" : name, otherwise, instead));
}

}  // namespace strata
