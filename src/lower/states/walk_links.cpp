#include "lower/states/walk_links.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

std::string name_from_owner(int owner, int to) { return fmt::format("owned{}to{}", owner, to); }
std::string name_between(int from, int to) { return fmt::format("walking{}to{}", from, to); }

}  // namespace

WalkLinks::WalkLinks(ParameterWalk of_rank, int first_stream) : walk(std::move(of_rank)), first_stream_(first_stream) {
  const auto add = [&](std::string name) {
    if (std::ranges::find(streams, name) == streams.end()) streams.push_back(std::move(name));
  };
  for (const ParameterWalk::Visit& visit : walk.visits) {
    if (visit.from < 0) continue;
    add(is_from_owner(visit) ? name_from_owner(visit.from, walk.rank) : name_between(visit.from, walk.rank));
    if (visit.goes_on) add(name_between(walk.rank, walk.rank + 1));
  }
  for (const ParameterWalk::Departure& departure : walk.departures) add(name_from_owner(walk.rank, departure.to));
}

int WalkLinks::stream_from_owner(int owner, int to) const { return number_of(name_from_owner(owner, to)); }
int WalkLinks::stream_between(int from, int to) const { return number_of(name_between(from, to)); }

int WalkLinks::number_of(const std::string& name) const {
  const auto at = std::ranges::find(streams, name);
  STRATA_INVARIANT(at != streams.end(), "no stream " + name);
  return first_stream_ + static_cast<int>(at - streams.begin());
}

}  // namespace strata
