#pragma once

/// @file
/// Bytes that a layer's layout holds for as long as a step, which add up over layers. States of a layer are held p0
/// times, so a rank has 1/(p1 p2) of them; with zero1 the optimizer's are cut over p0 too. An input is kept until
/// backward as it was gathered, p1 times its part. With algorithm ring an input that has gone round is kept once. With
/// algorithm summa a matrix is held p1 times, what is not a matrix p0·p1 times, and an input once. Source: AutoDDL
/// sec. 4.4.2 and 4.5.2.
///
/// A bound in closed form: a search over layers needs numbers that add up, one for each layer and layout, while a
/// Program is one of all layers. No Program of these layouts needs less; whether a strategy fits, its Program says.

#include <cstdint>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "partition/stages.hpp"
#include "planners/layouts/layers.hpp"

namespace strata {

class LastingBytes {
 public:
  /// @param plan mesh of a stage, batch, schedule, stages, recomputation, dtypes, optimizer. @param num_places of the
  /// pipeline, each of such a mesh. @param shards_optimizer zero1 over the copies of a weight.
  LastingBytes(const ModelGraph& graph, const Plan& plan, int num_places, bool shards_optimizer);

  /// Of one rank: states, and inputs that are kept until backward, of as many micro-batches as the layer's stage has in
  /// flight.
  std::int64_t of(const Layer& layer, const Layout& layout) const;
  /// Of all layers. @param layouts by layer of @p chain.
  std::int64_t of_all(const LayerChain& chain, std::span<const Layout> layouts) const;

 private:
  std::int64_t input_bytes(const Layer& layer) const;  ///< of a micro-batch, over all ranks
  std::int64_t in_flight(const Layer& layer) const;    ///< micro-batches whose inputs its stage keeps at a time
  std::int64_t state_bytes(const Layer& layer, const Layout& layout) const;

  std::vector<Stage> stages_;
  int num_places_;
  Schedule schedule_;
  std::int64_t ranks_, samples_, weight_bytes_, gradient_bytes_, optimizer_bytes_;
  bool shards_optimizer_, recomputes_blocks_, keeps_gradients_;
};

}  // namespace strata
