#include "planners/layouts/step_costs.hpp"

#include "base/ceil_div.hpp"
#include "base/dtype.hpp"
#include "partition/shards.hpp"
#include "planners/states/factors.hpp"

namespace strata {
namespace {

/// Blocks on a ring are features: what comes cut along samples is exchanged before.
bool may_spare_exchange(const LayerLink& link, const Layer& to) {
  return link.is_unary && to.algorithm != MatmulAlgorithm::ring;
}

}  // namespace

StepCosts::StepCosts(const Plan& plan, const LinkCosts& links)
    : links_(links),
      grid_(whole_grid(plan.mesh)),
      samples_(plan.global_batch / plan.schedule.micro_batches),
      micro_batches_(plan.schedule.micro_batches),
      activation_bytes_(static_cast<double>(size_of(plan.dtypes.compute))),
      gradient_bytes_(static_cast<double>(size_of(plan.dtypes.gradient))),
      recomputes_blocks_(plan.recompute != Recompute::none) {}

MatmulSize StepCosts::size(const Layer& layer) const {
  return {.m = static_cast<double>(layer.rows * samples_),
          .k = static_cast<double>(layer.in),
          .n = static_cast<double>(layer.out),
          .weights = static_cast<double>(layer.parameters),
          .matrix = static_cast<double>(layer.matrix_elements())};
}

MatmulSize StepCosts::size_of_fullest(const Layer& layer, const Layout& layout) const {
  const bool is_summa = layer.algorithm == MatmulAlgorithm::summa;
  const std::int64_t p0 = layout.p0.total(), p1 = layout.p1.total(), p2 = layout.p2.total();
  std::int64_t in_parts = layer.is_embedding || layer.reads_data ? p2 : p1 * p2;
  if (is_summa) in_parts = num_panels(layout, layer.shares_weight);
  const auto growth = [](std::int64_t size, std::int64_t parts) {
    return static_cast<double>(round_up(size, parts)) / static_cast<double>(size);
  };
  const double in = growth(layer.in, in_parts), out = growth(layer.out, is_summa ? p2 : p1 * p2);
  MatmulSize size = this->size(layer);
  size.m *= growth(samples_, is_summa ? p0 * p1 : p0);
  size.k *= in;
  size.n *= out;
  size.weights *= in * out;
  size.matrix *= in * out;
  return size;
}

double StepCosts::forward_passes(const Layer& layer) const {
  return micro_batches_ * (recomputes_blocks_ && layer.block >= 0 ? 2.0 : 1.0);
}

double StepCosts::activation_seconds(Collective kind, double elements, const Factor& group) const {
  return elements > 0.0 ? links_.seconds(kind, activation_bytes_ * elements, group) : 0.0;
}

double StepCosts::gradient_seconds(double elements, const Factor& group) const {
  return elements > 0.0 ? links_.seconds(Collective::all_reduce, gradient_bytes_ * elements, group) : 0.0;
}

Volume StepCosts::forward_volume_of(const Layer& layer, const MatmulSize& size, const Layout& layout) {
  if (layer.sum == PartialSums::scatter) return forward_volume(size, layout, !layer.reads_data);
  return whole_sum_forward_volume(size, layout, layer.is_behind_images);
}

Volume StepCosts::backward_volume_of(const Layer& layer, const MatmulSize& size, const Layout& layout) {
  if (layer.sum == PartialSums::scatter) return backward_volume(size, layout, !layer.reads_data);
  return whole_sum_backward_volume(size, layout, layer.is_behind_images, !layer.reads_data);
}

double StepCosts::gathered_again(const Layer& layer, const MatmulSize& size, const Layout& layout) {
  if (layer.algorithm != MatmulAlgorithm::ring) return 0.0;
  return forward_volume(size, layout, !layer.reads_data).all_gather;
}

/// Inputs travel between the ranks of p1, outputs between those of p2; backward their gradients the other way.
double StepCosts::activation_seconds(const Volume& volume, const Layout& layout, bool is_forward) const {
  const Factor& gathers = is_forward ? layout.p1 : layout.p2;
  const Factor& sums = is_forward ? layout.p2 : layout.p1;
  return activation_seconds(Collective::all_gather, volume.all_gather, gathers) +
         activation_seconds(Collective::reduce_scatter, volume.reduce_scatter, sums) +
         activation_seconds(Collective::all_reduce, volume.all_reduce, sums);
}

double StepCosts::statistics_seconds(std::int64_t statistics, const Factor& samples, const Factor& features) const {
  const int members = features.total();
  if (members == 1 || statistics == 0) return 0.0;
  const double rows_of_rank = static_cast<double>(samples_) / samples.total();
  return links_.seconds(Collective::all_gather, 4.0 * static_cast<double>(statistics) * rows_of_rank * (members - 1),
                        features);
}

double StepCosts::seconds(const Layer& layer, const Layout& layout) const {
  if (layer.algorithm == MatmulAlgorithm::summa) return summa_seconds(layer, layout);
  const MatmulSize size = size_of_fullest(layer, layout);
  // What stands behind a whole sum is split by p1 alone.
  const Factor features = layer.sum == PartialSums::scatter ? quotient(grid_, layout.p0) : layout.p1;
  const double forward_seconds = activation_seconds(forward_volume_of(layer, size, layout), layout, true) +
                                 statistics_seconds(layer.forward_statistics, layout.p0, features);
  const double backward_seconds =
      activation_seconds(backward_volume_of(layer, size, layout), layout, false) +
      activation_seconds(Collective::all_gather, gathered_again(layer, size, layout), layout.p1) +
      statistics_seconds(layer.backward_statistics, layout.p0, features);
  return forward_passes(layer) * forward_seconds + micro_batches_ * backward_seconds +
         gradient_seconds(weight_gradient_volume(size, layout).all_reduce, layout.p0);
}

/// Panels follow one another, and each is one rank's to send.
double StepCosts::summa_seconds(const Layer& layer, const Layout& layout) const {
  const MatmulSize size = size_of_fullest(layer, layout);
  const PanelVolume all = panel_volume(size, layout);
  const double panels = num_panels(layout, layer.shares_weight);
  const auto panel_by_panel = [&](Collective kind, double bytes, const Factor& group) {
    return bytes > 0.0 ? panels * links_.seconds(kind, bytes / panels, group) : 0.0;
  };
  const auto of_inputs = [&](Collective kind) {
    return panel_by_panel(kind, activation_bytes_ * all.inputs, layout.p2);
  };
  const double of_weights = panel_by_panel(Collective::broadcast, activation_bytes_ * all.weights, layout.p0);
  const double of_weight_gradients = panel_by_panel(Collective::reduce, gradient_bytes_ * all.weights, layout.p0);
  const Factor samples = local_layout(layer, layout).p0, features = quotient(grid_, samples);
  const double forward_seconds =
      of_inputs(Collective::broadcast) + of_weights + statistics_seconds(layer.forward_statistics, samples, features);
  double backward_seconds = of_inputs(Collective::broadcast) + of_weight_gradients +
                            statistics_seconds(layer.backward_statistics, samples, features);
  if (!layer.reads_data) backward_seconds += of_weights + of_inputs(Collective::reduce);
  const SummaGradientVolume gradients = summa_gradient_volume(size, layout);
  return forward_passes(layer) * forward_seconds + micro_batches_ * backward_seconds +
         gradient_seconds(gradients.matrix, layout.p1) + gradient_seconds(gradients.others, samples);
}

double StepCosts::seconds(const LayerLink& link, const Layer& to_layer, const Layout& from, const Layout& to) const {
  if (to_layer.sum == PartialSums::all_reduce) {
    if (link.gathers || from.p0 == to.p0) return 0.0;
    const double elements = static_cast<double>(link.elements) * static_cast<double>(samples_);
    const double gathered = gather_volume(elements, from, to);
    return micro_batches_ * activation_seconds(Collective::all_gather, gathered, quotient(from.p0, to.p0));
  }
  if (!needs_exchange(from, to, may_spare_exchange(link, to_layer))) return 0.0;
  return exchange_seconds(link, to_layer, from.p0, to.p0);
}

double StepCosts::exchange_seconds(const LayerLink& link, const Layer& to_layer, const Factor& from_p0,
                                   const Factor& to_p0) const {
  const Exchange exchange = exchange_between(from_p0, to_p0);
  const double elements = static_cast<double>(link.elements) * static_cast<double>(samples_) / grid_.total();
  const double once =
      links_.seconds(Collective::all_to_all, activation_bytes_ * elements * exchange.moved_share, exchange.group);
  return (forward_passes(to_layer) + micro_batches_) * once;
}

StepVolume StepCosts::volume(const LayerChain& chain, std::span<const Layout> layouts) const {
  StepVolume sum;
  for (std::size_t l = 0; l < chain.layers.size(); ++l) {
    const Layer& layer = chain.layers[l];
    const MatmulSize size = this->size(layer);
    if (layer.algorithm == MatmulAlgorithm::summa) {
      sum.forward += summa_forward_volume(size, layouts[l]);
      sum.backward += summa_backward_volume(size, layouts[l], !layer.reads_data);
      const SummaGradientVolume gradients = summa_gradient_volume(size, layouts[l]);
      sum.weight_gradients += {.all_reduce = gradients.matrix + gradients.others};
      continue;
    }
    sum.forward += forward_volume_of(layer, size, layouts[l]);
    sum.backward += backward_volume_of(layer, size, layouts[l]);
    sum.backward += {.all_gather = gathered_again(layer, size, layouts[l])};
    sum.weight_gradients += weight_gradient_volume(size, layouts[l]);
  }
  const auto of_link = [&](int l) {
    return local_layout(chain.layers[static_cast<std::size_t>(l)], layouts[static_cast<std::size_t>(l)]);
  };
  for (const LayerLink& link : chain.links) {
    const double elements = static_cast<double>(link.elements) * static_cast<double>(samples_);
    if (chain.layers[static_cast<std::size_t>(link.to)].sum == PartialSums::all_reduce) {
      if (!link.gathers) sum.forward.all_gather += gather_volume(elements, of_link(link.from), of_link(link.to));
      continue;
    }
    const Volume moved{.all_to_all =
                           exchange_volume(elements, of_link(link.from), of_link(link.to), grid_,
                                           may_spare_exchange(link, chain.layers[static_cast<std::size_t>(link.to)]))};
    sum.forward += moved;
    sum.backward += moved;
  }
  return sum;
}

}  // namespace strata
