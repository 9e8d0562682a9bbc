#include "run/assigned_states.hpp"

#include <fmt/core.h>

#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace strata::run {

std::vector<KeptPart::State> all_states(const KeptPart& part) {
  std::vector<KeptPart::State> states = part.states;
  if (part.previous) states.push_back({std::string(previous_state), *part.previous});
  return states;
}

std::vector<AssignedState> assign_states(const comm::World& world, const ModelGraph& graph,
                                         const std::vector<KeptPart>& parts) {
  std::vector<AssignedState> all;
  std::string mine;
  for (const KeptPart& part : parts) {
    for (const KeptPart::State& state : all_states(part)) {
      all.push_back({&part, state});
      mine += fmt::format("{} {} {} {} {}\n", part.parameter, state.name, part.block.first, part.begin,
                          part.num_elements());
    }
  }
  // Parameter, state, first column, first element of these.
  using Key = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;
  std::map<Key, std::pair<int, std::int64_t>> given_by;  // rank and size
  const std::vector<std::string> lists = world.all_gather(mine);
  for (int rank = 0; rank < world.size(); ++rank) {
    std::istringstream stream(lists[static_cast<std::size_t>(rank)]);
    Key key;
    auto& [parameter, state, column, begin] = key;
    std::int64_t size = 0;
    while (stream >> parameter >> state >> column >> begin >> size) {
      const auto [place, is_new] = given_by.try_emplace(key, rank, size);
      STRATA_INVARIANT(place->second.second == size, parameter + ": shards of two sizes begin at one element");
    }
  }
  std::map<std::tuple<std::string, std::string, std::int64_t>, std::int64_t> end;
  std::map<std::pair<std::string, std::string>, std::int64_t> num_given;
  for (const auto& [key, held] : given_by) {
    const auto& [parameter, state, column, begin] = key;
    std::int64_t& before = end[{parameter, state, column}];
    STRATA_INVARIANT(before == begin, parameter + ": shards that overlap or leave a gap");
    before += held.second;
    num_given[{parameter, state}] += held.second;
  }
  for (const Parameter& parameter : graph.parameters) {
    STRATA_INVARIANT(num_given.contains({parameter.name, "value"}), parameter.name + " is not updated");
    for (const auto& [key, num] : num_given) {
      STRATA_INVARIANT(key.first != parameter.name || num == parameter.num_elements(),
                       fmt::format("{} of {} is not kept as a whole", key.second, parameter.name));
    }
  }
  std::erase_if(all, [&](const AssignedState& given) {
    const KeptPart& part = *given.part;
    return given_by.at({part.parameter, given.state.name, part.block.first, part.begin}).first != world.rank();
  });
  return all;
}

}  // namespace strata::run
