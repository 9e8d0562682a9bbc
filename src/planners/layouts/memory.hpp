#pragma once

/// @file
/// Bytes of one rank under given layouts, before anything is lowered. States of a layer are held p0 times, so a rank
/// has 1/(p1 p2) of them; with zero1 the optimizer's are cut over p0 too. What stands at a home is 1/p of itself; an
/// input is kept as it was gathered, p1 times that, and an output exists p2 times that before it is reduced. Source:
/// AutoDDL sec. 4.4.2 and 4.5.2. With algorithm summa a matrix is held p1 times, what is not a matrix p0·p1 times, and
/// of inputs and weights two panels exist, in backward two of each gradient beside them, and where rows or columns do
/// not divide each other a packed copy of what a rank sends.

#include <cstdint>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "partition/stages.hpp"
#include "planners/layouts/layers.hpp"
#include "planners/states/memory.hpp"

namespace strata {

class LayoutMemory {
 public:
  /// @param plan mesh of a stage, batch, stages, recomputation, dtypes, optimizer. @param shards_optimizer zero1 over
  /// the copies of a weight.
  LayoutMemory(const ModelGraph& graph, const LayerChain& chain, const Plan& plan, bool shards_optimizer);

  /// What adds up over layers, at most what account() says of all: states, and inputs that are kept until backward, of
  /// as many micro-batches as the layer's stage has in flight.
  std::int64_t lasting_bytes(const Layer& layer, const Layout& layout) const;

  /// At the fullest moment. @param layouts by layer.
  MemoryAccount account(std::span<const Layout> layouts) const;

 private:
  std::int64_t input_bytes(const Layer& layer) const;  ///< of a micro-batch, over all ranks
  std::int64_t in_flight(const Layer& layer) const;    ///< micro-batches whose inputs its stage keeps at a time
  MemoryAccount states(const Layer& layer, const Layout& layout) const;
  std::int64_t panel_bytes(const Layer& layer, const Layout& layout) const;

  const ModelGraph& graph_;
  const LayerChain& chain_;
  std::vector<BackwardMoment> moments_;  ///< over all ranks
  std::vector<Stage> stages_;
  Schedule schedule_;
  std::int64_t ranks_, samples_, weight_bytes_, gradient_bytes_, optimizer_bytes_;
  bool shards_optimizer_, recomputes_blocks_, has_one_micro_batch_;
};

}  // namespace strata
