#pragma once

/// @file
/// Seconds a step communicates under given layouts, if nothing is hidden: AutoDDL's objective. Compute is the same
/// under all of them. Activations travel once a micro-batch and pass, twice forward where a block is recomputed; weight
/// gradients once a step.

#include <span>

#include "ir/plan/plan.hpp"
#include "planners/layouts/layers.hpp"
#include "planners/layouts/link_costs.hpp"
#include "planners/layouts/volume.hpp"

namespace strata {

/// Elements of a whole step, as Volume: activations in the plan's compute dtype, weight gradients in theirs.
struct StepVolume {
  Volume forward, backward;  ///< of one micro-batch
  Volume weight_gradients;
};

class StepCosts {
 public:
  /// @param plan mesh, batch, recomputation and dtypes.
  StepCosts(const Plan& plan, const LinkCosts& links);

  /// What a layer moves whatever its neighbours' layouts are.
  double seconds(const Layer& layer, const Layout& layout) const;
  /// What a link moves because rows are cut otherwise at its two ends, local layouts. @p to_layer its second end. Where
  /// that leaves whole sums, rows come from what works on images and are gathered; those that it reads itself count
  /// with the layer.
  double seconds(const LayerLink& link, const Layer& to_layer, const Layout& from, const Layout& to) const;
  /// As above, where they need an exchange: many pairs of layouts have the same.
  double exchange_seconds(const LayerLink& link, const Layer& to_layer, const Factor& from_p0,
                          const Factor& to_p0) const;
  /// Of a layer's product: rows of a micro-batch over all ranks.
  MatmulSize size(const Layer& layer) const;
  /// As if every rank had as much as the one with most, where @p layout divides unevenly: that one is waited for.
  MatmulSize size_of_fullest(const Layer& layer, const Layout& layout) const;
  /// Of all layers and links, by layer. Statistics of norms and losses are left out: a few numbers a row.
  StepVolume volume(const LayerChain& chain, std::span<const Layout> layouts) const;

  const LinkCosts& links() const { return links_; }
  std::int64_t samples() const { return samples_; }  ///< of a micro-batch, over all ranks
  const Factor& grid() const { return grid_; }

 private:
  /// Forward passes of what stands in @p layer's block, a step; backward ones.
  double forward_passes(const Layer& layer) const;
  double activation_seconds(Collective kind, double elements, const Factor& group) const;
  double gradient_seconds(double elements, const Factor& group) const;
  /// Statistics of norms and losses that work where samples are split over @p samples and features over @p features.
  double statistics_seconds(std::int64_t statistics, const Factor& samples, const Factor& features) const;
  double summa_seconds(const Layer& layer, const Layout& layout) const;
  /// Of a product by parts of outputs or inputs, in one pass.
  static Volume forward_volume_of(const Layer& layer, const MatmulSize& size, const Layout& layout);
  static Volume backward_volume_of(const Layer& layer, const MatmulSize& size, const Layout& layout);
  /// Of its input, over p1 in backward: by blocks on a ring alone. Elsewhere it is kept as it was gathered.
  static double gathered_again(const Layer& layer, const MatmulSize& size, const Layout& layout);
  double activation_seconds(const Volume& volume, const Layout& layout, bool is_forward) const;

  LinkCosts links_;
  Factor grid_;
  std::int64_t samples_;
  double micro_batches_, activation_bytes_, gradient_bytes_;
  bool recomputes_blocks_;
};

}  // namespace strata
