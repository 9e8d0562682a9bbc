#include "lower/step/rank_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "lower/layouts/replica_grids.hpp"
#include "lower/step/streams.hpp"
#include "partition/stages.hpp"

namespace strata {

RankGroups::RankGroups(const Plan& plan, const LaidOutGraph& model, const RankPlace& place, int rank,
                       ProgramBuilder& builder) {
  if (model.is_laid_out()) {
    axes.emplace(AtomicAxes(plan.mesh), model, rank, builder);
    rings.emplace(AtomicAxes(plan.mesh), model, rank, layout_stream + 1, builder);
    parameters.num_copies = model.num_copies;
    for (const AxisSet set : sets_of_replicas(model)) parameters.data.push_back(axes->of(set));
    if (place.num_places() == 1) parameters.everybody = axes->everybody();
  } else {
    const bool is_alone = place.data_size == 1;
    parameters.data = {is_alone ? -1 : builder.add_group({"data", group_along(plan.mesh, "data", rank)})};
  }
  const std::vector<int> column = group_along(plan.mesh, "stage", rank);
  if (place.num_places() > 1) parameters.stages = builder.add_group({"stage", column});
  // Two ranks are neighbours twice: messages of one group between two ranks keep one order.
  if (place.pipeline.is_ring()) around = builder.add_group({"around", column});
  std::map<std::vector<int>, int> group_of_holders;
  const auto users = stages_of_parameters(model.graph, model.stages);
  for (std::size_t p = 0; p < users.size(); ++p) {
    const std::vector<int> holders = place.pipeline.places_of(users[p]);
    if (axes) parameters.num_copies[p] *= static_cast<std::int64_t>(holders.size());
    if (holders.size() < 2 || std::ranges::find(holders, place.in_pipeline) == holders.end()) continue;
    const auto [group, is_new] = group_of_holders.try_emplace(holders, parameters.stages);
    if (is_new && holders.size() < column.size()) {
      std::vector<int> ranks;
      for (const int s : holders) ranks.push_back(column[static_cast<std::size_t>(s)]);
      group->second = builder.add_group({fmt::format("stages[{}]", fmt::join(holders, ",")), std::move(ranks)});
    }
    parameters.copies[static_cast<int>(p)] = {group->second, place.in_pipeline == holders.front()};
  }
  if (!axes || place.num_places() == 1) return;
  parameters.everybody = parameters.stages;
  if (plan.mesh.num_ranks() == place.num_places()) return;
  std::vector<int> ranks(static_cast<std::size_t>(plan.mesh.num_ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  parameters.everybody = builder.add_group({"all", std::move(ranks)});
}

}  // namespace strata
