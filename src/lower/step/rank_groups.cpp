#include "lower/step/rank_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "partition/stages.hpp"

namespace strata {

RankGroups::RankGroups(const Plan& plan, const LaidOutGraph& model, const RankPlace& place, int rank,
                       ProgramBuilder& builder) {
  if (model.is_laid_out()) {
    axes.emplace(AtomicAxes(plan.mesh), model, rank, builder);
    parameters.num_copies = model.num_copies;
    for (const AxisSet set : sets_of_replicas(model)) parameters.data.push_back(axes->of(set));
    if (place.num_stages == 1) parameters.everybody = axes->everybody();
  } else {
    const bool is_alone = place.data_size == 1;
    parameters.data = {is_alone ? -1 : builder.add_group({"data", group_along(plan.mesh, "data", rank)})};
  }
  const std::vector<int> column = group_along(plan.mesh, "stage", rank);
  if (place.num_stages > 1) parameters.stages = builder.add_group({"stage", column});
  std::map<std::vector<int>, int> group_of_stages;
  const auto users = stages_of_parameters(model.graph, place.stages);
  for (std::size_t p = 0; p < users.size(); ++p) {
    const std::vector<int>& stages = users[p];
    if (axes) parameters.num_copies[p] *= static_cast<std::int64_t>(stages.size());
    if (stages.size() < 2 || std::ranges::find(stages, place.stage_index) == stages.end()) continue;
    const auto [group, is_new] = group_of_stages.try_emplace(stages, parameters.stages);
    if (is_new && stages.size() < column.size()) {
      std::vector<int> ranks;
      for (const int s : stages) ranks.push_back(column[static_cast<std::size_t>(s)]);
      group->second = builder.add_group({fmt::format("stages[{}]", fmt::join(stages, ",")), std::move(ranks)});
    }
    parameters.copies[static_cast<int>(p)] = {group->second, place.stage_index == stages.front()};
  }
  if (!axes || place.num_stages == 1) return;
  parameters.everybody = parameters.stages;
  if (plan.mesh.num_ranks() == place.num_stages) return;
  std::vector<int> ranks(static_cast<std::size_t>(plan.mesh.num_ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  parameters.everybody = builder.add_group({"all", std::move(ranks)});
}

}  // namespace strata
