#include "planners/layouts/volume.hpp"

#include <numeric>

#include "partition/layout_rules.hpp"
#include "planners/states/factors.hpp"

namespace strata {
namespace {

double moved(double elements, const Factor& group) { return elements * (group.total() - 1) / group.total(); }

}  // namespace

Volume& Volume::operator+=(const Volume& other) {
  all_gather += other.all_gather;
  reduce_scatter += other.reduce_scatter;
  all_to_all += other.all_to_all;
  all_reduce += other.all_reduce;
  broadcast += other.broadcast;
  reduce += other.reduce;
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

Volume whole_sum_forward_volume(const MatmulSize& size, const Layout& layout, bool gathers_input) {
  const Volume scattered = forward_volume(size, layout, gathers_input);
  return {.all_gather = scattered.all_gather, .all_reduce = 2.0 * scattered.reduce_scatter};
}

Volume whole_sum_backward_volume(const MatmulSize& size, const Layout& layout, bool gathers_input,
                                 bool wants_input_gradient) {
  if (!wants_input_gradient) return {};
  const double gradient = forward_volume(size, layout).all_gather;
  return gathers_input ? Volume{.reduce_scatter = gradient} : Volume{.all_reduce = 2.0 * gradient};
}

Volume weight_gradient_volume(const MatmulSize& size, const Layout& layout) {
  const double split = layout.p1.total() * layout.p2.total();
  return {.all_reduce = 2.0 * moved(size.weights / split, layout.p0)};
}

PanelVolume panel_volume(const MatmulSize& size, const Layout& layout) {
  const double samples = layout.p0.total() * layout.p1.total();
  return {.inputs = moved(size.m * size.k / samples, layout.p2),
          .weights = moved(size.k * size.n / layout.p2.total(), layout.p0)};
}

Volume summa_forward_volume(const MatmulSize& size, const Layout& layout) {
  const PanelVolume panels = panel_volume(size, layout);
  return {.broadcast = panels.inputs + panels.weights};
}

Volume summa_backward_volume(const MatmulSize& size, const Layout& layout, bool wants_input_gradient) {
  const PanelVolume panels = panel_volume(size, layout);
  if (!wants_input_gradient) return {.broadcast = panels.inputs, .reduce = panels.weights};
  return {.broadcast = panels.inputs + panels.weights, .reduce = panels.inputs + panels.weights};
}

SummaGradientVolume summa_gradient_volume(const MatmulSize& size, const Layout& layout) {
  const double columns = layout.p2.total();
  return {.matrix = 2.0 * moved(size.matrix / (layout.p0.total() * columns), layout.p1),
          .others = 2.0 * moved((size.weights - size.matrix) / columns, product(layout.p0, layout.p1))};
}

int num_panels(const Layout& layout, bool shares_weight) {
  const int rows = layout.p0.total(), columns = layout.p2.total();
  return shares_weight ? rows * columns : std::lcm(rows, columns);
}

Exchange exchange_between(const Factor& from_p0, const Factor& to_p0) {
  const auto changed = [](int a, int b) { return a / std::gcd(a, b) * (b / std::gcd(a, b)); };
  const Factor group{changed(from_p0.in_node, to_p0.in_node), changed(from_p0.nodes, to_p0.nodes)};
  return {.moved_share = moved(1.0, group), .group = group};
}

bool needs_exchange(const Layout& from, const Layout& to, bool is_unary) {
  return from.p0 != to.p0 && !(is_unary && spares_exchange(from, to));
}

double exchange_volume(double elements, const Layout& from, const Layout& to, const Factor& grid, bool is_unary) {
  if (!needs_exchange(from, to, is_unary)) return 0.0;
  return exchange_between(from.p0, to.p0).moved_share * elements / grid.total();
}

double gather_volume(double elements, const Layout& from, const Layout& to) {
  return from.p0 == to.p0 ? 0.0 : moved(elements / to.p0.total(), quotient(from.p0, to.p0));
}

}  // namespace strata
