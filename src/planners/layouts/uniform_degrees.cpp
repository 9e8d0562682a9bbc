#include "planners/layouts/uniform_degrees.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "partition/shards.hpp"
#include "planners/layouts/grid_search.hpp"
#include "planners/layouts/megatron_layouts.hpp"
#include "planners/states/factors.hpp"

namespace strata {

OptionRow tensor_option() {
  return {"tensor", std::string(planner_word), "", "ranks over which a weight is cut, in a node x nodes; or planner"};
}

OptionRow tensor_in_node_option() {
  return {"tensor_in_node", true, "", "where nodes have several ranks, the planner keeps `tensor` inside a node"};
}

Plan cheapest_uniform_degrees(const PlanRequest& request, const LayoutPlanning& planning) {
  const Factor grid = planning.grid();
  const auto fixed = factor_option("tensor", request.option<std::string>("tensor"), planner_word);
  const bool in_node = request.option<bool>("tensor_in_node") && grid.in_node > 1;
  std::vector<WayToCut> ways;
  std::string broken;
  for (const Factor& tensor : fixed ? std::vector{*fixed} : divisors(in_node ? Factor{grid.in_node, 1} : grid)) {
    if (!divides(tensor, grid)) {
      broken = fmt::format("tensor = {} does not divide {} ranks a node × {} nodes", to_string(tensor), grid.in_node,
                           grid.nodes);
      continue;
    }
    ways.push_back({fmt::format("data {} x tensor {}", to_string(quotient(grid, tensor)), to_string(tensor)),
                    megatron_layouts(planning.chain(), grid, tensor)});
  }
  return cheapest_way(planning, ways, std::move(broken));
}

}  // namespace strata
