#include "planners/layouts/volume.hpp"

#include <algorithm>
#include <numeric>

#include "ir/shards.hpp"
#include "planners/sharding/factors.hpp"

namespace strata {
namespace {

double moved(double elements, const Factor& group) { return elements * (group.total() - 1) / group.total(); }

/// One dim cut into @p parts equal blocks; positions are in units of 1/(from · to) of the dim.
struct Blocks {
  std::int64_t from = 1, to = 1;
  /// Of block @p a before and block @p b after.
  std::int64_t overlap(std::int64_t a, std::int64_t b) const {
    return std::max<std::int64_t>(0, std::min((a + 1) * to, (b + 1) * from) - std::max(a * to, b * from));
  }
  /// Blocks after that block @p a before has a part of.
  std::int64_t met(std::int64_t a) const { return ((a + 1) * to - 1) / from - a * to / from + 1; }
};

/// Where a home puts rank @p in_node of node @p node: which block of rows, which of features.
struct Place {
  std::int64_t row = 0, feature = 0;
};
Place place_of(int in_node, int node, const Factor& p0, const Factor& grid) {
  const Factor rest = quotient(grid, p0);
  return {std::int64_t{node / rest.nodes} * p0.in_node + in_node / rest.in_node,
          std::int64_t{node % rest.nodes} * rest.in_node + in_node % rest.in_node};
}

}  // namespace

Volume& Volume::operator+=(const Volume& other) {
  all_gather += other.all_gather;
  reduce_scatter += other.reduce_scatter;
  all_to_all += other.all_to_all;
  all_reduce += other.all_reduce;
  return *this;
}

Volume forward_volume(const MatmulSize& size, const Layout& layout, bool gathers_input) {
  Volume volume;
  const double p0 = layout.p0.total();
  if (gathers_input) volume.all_gather = moved(size.m * size.k / (p0 * layout.p2.total()), layout.p1);
  volume.reduce_scatter = moved(size.m * size.n / (p0 * layout.p1.total()), layout.p2);
  return volume;
}

Volume backward_volume(const MatmulSize& size, const Layout& layout, bool gathers_input) {
  const Volume forward = forward_volume(size, layout, gathers_input);
  return {.all_gather = forward.reduce_scatter, .reduce_scatter = forward.all_gather};
}

Volume weight_gradient_volume(const MatmulSize& size, const Layout& layout) {
  const double split = layout.p1.total() * layout.p2.total();
  return {.all_reduce = 2.0 * moved(size.weights / split, layout.p0)};
}

Exchange exchange_between(const Factor& from_p0, const Factor& to_p0, const Factor& grid) {
  if (from_p0 == to_p0) return {};
  for (const auto& [less, more] : {std::pair{from_p0, to_p0}, std::pair{to_p0, from_p0}}) {
    if (!divides(less, more)) continue;
    const Factor q = quotient(more, less);
    return {.moved_share = static_cast<double>(q.total() - 1) / q.total(), .partners = q.total() - 1, .group = q};
  }
  const Factor from_rest = quotient(grid, from_p0), to_rest = quotient(grid, to_p0);
  const Blocks rows{from_p0.total(), to_p0.total()}, features{from_rest.total(), to_rest.total()};
  const auto whole = static_cast<double>(rows.to * features.to);  // a rank's elements, in units of overlaps
  Exchange exchange;
  for (int node = 0; node < grid.nodes; ++node) {
    for (int in_node = 0; in_node < grid.in_node; ++in_node) {
      const Place before = place_of(in_node, node, from_p0, grid), after = place_of(in_node, node, to_p0, grid);
      const std::int64_t kept = rows.overlap(before.row, after.row) * features.overlap(before.feature, after.feature);
      const std::int64_t met = rows.met(before.row) * features.met(before.feature) - (kept > 0 ? 1 : 0);
      exchange.moved_share = std::max(exchange.moved_share, 1.0 - static_cast<double>(kept) / whole);
      exchange.partners = std::max(exchange.partners, static_cast<int>(met));
    }
  }
  // Blocks begin anew where both cuts do.
  const auto reach = [](int from, int to) { return std::lcm(from, to) / std::gcd(from, to); };
  exchange.group = {reach(from_p0.in_node, to_p0.in_node), reach(from_p0.nodes, to_p0.nodes)};
  return exchange;
}

bool needs_exchange(const Layout& from, const Layout& to, bool is_unary) {
  return from.p0 != to.p0 && !(is_unary && from.p1 == to.p2);
}

double exchange_volume(double elements, const Layout& from, const Layout& to, const Factor& grid, bool is_unary) {
  if (!needs_exchange(from, to, is_unary)) return 0.0;
  return exchange_between(from.p0, to.p0, grid).moved_share * elements / grid.total();
}

}  // namespace strata
