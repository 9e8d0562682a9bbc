#include "planners/layouts/lasting_bytes.hpp"

#include <algorithm>

#include "base/ceil_div.hpp"
#include "base/dtype.hpp"
#include "partition/shards.hpp"
#include "planners/layouts/volume.hpp"

namespace strata {
namespace {

std::int64_t copies_of_input(const Layer& layer, const Layout& layout) {
  const bool is_kept_in_parts =
      layer.algorithm == MatmulAlgorithm::summa || (layer.algorithm == MatmulAlgorithm::ring && !layer.reads_data);
  return is_kept_in_parts ? 1 : layout.p1.total();
}

}  // namespace

LastingBytes::LastingBytes(const ModelGraph& graph, const Plan& plan, int num_places, bool shards_optimizer)
    : stages_(cut_into_stages(graph, plan.stages)),
      num_places_(num_places),
      schedule_(plan.schedule),
      ranks_(plan.mesh.num_ranks()),
      samples_(plan.global_batch / plan.schedule.micro_batches),
      weight_bytes_(size_of(plan.dtypes.compute)),
      gradient_bytes_(size_of(plan.dtypes.gradient)),
      optimizer_bytes_(optimizer_bytes_per_element(plan)),
      shards_optimizer_(shards_optimizer),
      recomputes_blocks_(plan.recompute != Recompute::none),
      keeps_gradients_(plan.schedule.micro_batches > 1) {}

std::int64_t LastingBytes::input_bytes(const Layer& layer) const {
  return layer.is_embedding ? 0 : weight_bytes_ * layer.rows * layer.in * samples_;
}

std::int64_t LastingBytes::in_flight(const Layer& layer) const {
  if (schedule_.kind == ScheduleKind::gpipe) return schedule_.micro_batches;
  const auto found = std::ranges::find_if(stages_, [&](const Stage& s) { return layer.op < s.end(); });
  const std::int64_t stage = found - stages_.begin(), places = num_places_;
  // 1f1b; of one stage one.
  if (schedule_.kind != ScheduleKind::interleaved) {
    return std::min<std::int64_t>(schedule_.micro_batches, std::ssize(stages_) - stage);
  }
  // Before its first backward a place has begun so many passes, in rounds of as many micro-batches as there are places
  // through each of its stages in turn (lower/order/interleaved).
  const std::int64_t chunks = std::ssize(stages_) / places, round = chunks * places;
  const std::int64_t passes =
      std::min(chunks * schedule_.micro_batches, 2 * (places - stage % places - 1) + (chunks - 1) * places + 1);
  return passes / round * places + std::clamp(passes % round - stage / places * places, std::int64_t{0}, places);
}

std::int64_t LastingBytes::state_bytes(const Layer& layer, const Layout& layout) const {
  const std::int64_t p2 = layout.p2.total(), matrix = layer.matrix_elements();
  const std::int64_t held = layer.algorithm == MatmulAlgorithm::summa
                                ? ceil_div(matrix, layout.p0.total() * p2) + ceil_div(layer.parameters - matrix, p2)
                                : ceil_div(layer.parameters, layout.p1.total() * p2);
  const std::int64_t updated =
      shards_optimizer_ ? ceil_div(held, std::int64_t{copies_of_weight(layout, layer.algorithm).total()}) : held;
  // With one micro-batch gradients come as inputs go.
  return weight_bytes_ * held + optimizer_bytes_ * updated + (keeps_gradients_ ? gradient_bytes_ * held : 0);
}

std::int64_t LastingBytes::of(const Layer& layer, const Layout& layout) const {
  const bool is_kept = layer.is_searched && !(recomputes_blocks_ && layer.block >= 0);
  return state_bytes(layer, layout) +
         (is_kept ? in_flight(layer) * input_bytes(layer) / ranks_ * copies_of_input(layer, layout) : 0);
}

std::int64_t LastingBytes::of_all(const LayerChain& chain, std::span<const Layout> layouts) const {
  std::int64_t bytes = 0;
  for (std::size_t l = 0; l < layouts.size(); ++l) bytes += of(chain.layers[l], layouts[l]);
  return bytes;
}

}  // namespace strata
