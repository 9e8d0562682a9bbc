#include "planners/oases/ways_to_cut.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/ceil_div.hpp"
#include "base/error.hpp"
#include "partition/shards.hpp"
#include "planners/layouts/degrees_of_layers.hpp"
#include "planners/layouts/megatron_layouts.hpp"
#include "planners/states/factors.hpp"

namespace strata {
namespace {

/// Degrees whose ranks are as near as can be.
std::vector<Factor> near_ranks(const Factor& grid) {
  std::vector<Factor> all;
  for (const Factor& factor : divisors(grid)) {
    if (factor.nodes == 1 || factor.in_node == grid.in_node) all.push_back(factor);
  }
  return all;
}

std::vector<WayToCut> ways(const PlanRequest& request, const LayoutPlanning& planning) {
  const Factor& grid = planning.grid();
  const auto& degrees = request.option<std::string>("degrees");
  const auto& asked = request.option<std::string>("tensor");
  const auto uniform = factor_option("tensor", asked, planner_word);
  if (!degrees.empty()) {
    if (uniform) {
      throw UserError(fmt::format("strategy.tensor = \"{}\" beside strategy.degrees = \"{}\"; accepted: one of them",
                                  asked, degrees));
    }
    const std::vector<Factor> tensors = tensor_of_layers(planning.chain(), grid, parse_degrees(degrees));
    return {{"degrees " + degrees, megatron_layouts(planning.chain(), grid, tensors)}};
  }
  if (uniform && !divides(*uniform, grid)) {
    throw Unsupported(fmt::format("{} on {} ranks: tensor = {} does not divide {} ranks a node x {} nodes",
                                  request.base.strategy, grid.total(), to_string(*uniform), grid.in_node, grid.nodes));
  }
  std::vector<WayToCut> all;
  for (const Factor& tensor : uniform ? std::vector{*uniform} : near_ranks(grid)) {
    all.push_back({"tensor " + to_string(tensor), megatron_layouts(planning.chain(), grid, tensor)});
  }
  return all;
}

Factor most_tensor_ranks(const WayToCut& way) {
  Factor most;
  for (const Layout& layout : way.layouts) {
    for (const Factor& part : {layout.p1, layout.p2}) {
      if (part.total() > most.total()) most = part;
    }
  }
  return most;
}

}  // namespace

OptionRow degree_option() {
  return {"tensor", std::string(planner_word), "",
          "ranks over which every weight is cut, in a node x nodes; or planner"};
}

OptionRow degrees_option() {
  return {"degrees", std::string(), "",
          "the same a layer, in place of tensor: 2*8+4*16 is 2 in the first 8 layers and 4 in the next 16"};
}

std::string too_few_samples(const LayoutPlanning& planning, const WayToCut& way, int sub_batches) {
  int most_data = 1;
  for (const Layout& layout : way.layouts) most_data = std::max(most_data, layout.p0.total());
  const std::int64_t samples = planning.limits().samples, of_group = ceil_div(samples, std::int64_t{most_data});
  if (sub_batches <= of_group) return "";
  return fmt::format("{}: {} sub-batches of {} samples of a group of ranks ({} over {} groups)", way.name, sub_batches,
                     of_group, samples, most_data);
}

std::vector<WayToCut> possible_ways(const PlanRequest& request, const LayoutPlanning& planning, int sub_batches) {
  std::string broken;
  std::vector<WayToCut> possible;
  for (WayToCut& way : ways(request, planning)) {
    if (std::string limit = broken_limit(planning, way); !limit.empty()) {
      broken = std::move(limit);
    } else if (limit = too_few_samples(planning, way, sub_batches); !limit.empty()) {
      broken = std::move(limit);
    } else {
      possible.push_back(std::move(way));
    }
  }
  if (possible.empty()) {
    throw Unsupported(fmt::format("{} on {} ranks: no degrees are possible; {}", request.base.strategy,
                                  planning.grid().total(), broken));
  }
  return possible;
}

std::vector<Factor> tensors_of(const std::vector<WayToCut>& ways) {
  std::vector<Factor> tensors;
  for (const WayToCut& way : ways) tensors.push_back(most_tensor_ranks(way));
  std::ranges::stable_sort(tensors, {}, &Factor::total);
  return tensors;
}

}  // namespace strata
