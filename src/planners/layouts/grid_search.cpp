#include "planners/layouts/grid_search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

struct Candidate {
  const WayToCut* way = nullptr;
  double seconds = 0.0;
  std::int64_t bytes = 0;
};

std::string described(const LayoutPlanning& planning, const Candidate& candidate) {
  return fmt::format("{}: {}, {}", candidate.way->name, planning.seconds_in_words(candidate.seconds),
                     gib(candidate.bytes));
}

}  // namespace

std::string broken_limit(const LayoutPlanning& planning, const WayToCut& way) {
  for (std::size_t l = 0; l < way.layouts.size(); ++l) {
    const Layer& layer = planning.chain().layers[l];
    const std::string broken = broken_limit(layer, way.layouts[l], planning.limits());
    if (!broken.empty()) return fmt::format("{}: {}: {}", way.name, layer.name, broken);
  }
  return "";
}

Plan cheapest_way(const LayoutPlanning& planning, const std::vector<WayToCut>& ways, std::string broken) {
  std::vector<Candidate> candidates;
  for (const WayToCut& way : ways) {
    if (std::string limit = broken_limit(planning, way); !limit.empty()) {
      broken = std::move(limit);
      continue;
    }
    candidates.push_back({.way = &way});
  }
  if (candidates.empty()) {
    throw Unsupported(fmt::format("{} on {} ranks: no degrees are possible; {}", planning.request().base.strategy,
                                  planning.grid().total(), broken));
  }
  // Where there is nothing to choose from, nobody needs to know what it costs.
  if (candidates.size() > 1 || planning.knows_seconds()) {
    for (Candidate& candidate : candidates) candidate.seconds = planning.seconds(candidate.way->layouts);
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  const std::int64_t capacity = planning.capacity_bytes();
  const auto fits = [&](Candidate& candidate) {
    candidate.bytes = planning.peak(candidate.way->layouts).bytes;
    return capacity == 0 || candidate.bytes <= capacity;
  };
  const auto best = std::ranges::find_if(candidates, fits);
  if (best == candidates.end()) {
    planning.refuse_capacity(std::ranges::min_element(candidates, {}, &Candidate::bytes)->way->layouts);
  }
  const std::string binding = best == candidates.begin()
                                  ? best->way->name + "; binds nothing: the cheapest degrees fit"
                                  : fmt::format("{}; binds memory: {}; does not fit: {}", best->way->name,
                                                gib(capacity), described(planning, candidates.front()));
  Plan plan = planning.plan(best->way->layouts, binding);
  const auto second = std::find_if(std::next(best), candidates.end(), fits);
  if (second != candidates.end()) plan.why.runner_up = described(planning, *second);
  return plan;
}

}  // namespace strata
