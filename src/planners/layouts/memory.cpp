#include "planners/layouts/memory.hpp"

#include <algorithm>

#include "base/ceil_div.hpp"
#include "base/dtype.hpp"
#include "planners/layouts/volume.hpp"

namespace strata {
namespace {

std::int64_t copies_of_input(const Layer& layer, const Layout& layout) {
  return layer.algorithm == MatmulAlgorithm::summa ? 1 : layout.p1.total();
}

}  // namespace

LayoutMemory::LayoutMemory(const ModelGraph& graph, const LayerChain& chain, const Plan& plan, bool shards_optimizer)
    : graph_(graph),
      chain_(chain),
      stages_(cut_into_stages(graph, plan.stages)),
      schedule_(plan.schedule),
      ranks_(plan.mesh.num_ranks()),
      samples_(plan.global_batch / plan.schedule.micro_batches),
      weight_bytes_(size_of(plan.dtypes.compute)),
      gradient_bytes_(size_of(plan.dtypes.gradient)),
      optimizer_bytes_(optimizer_bytes_per_element(plan)),
      shards_optimizer_(shards_optimizer),
      recomputes_blocks_(plan.recompute != Recompute::none),
      has_one_micro_batch_(plan.schedule.micro_batches == 1) {
  moments_ = backward_moments(graph, plan.dtypes.compute, plan.recompute, samples_);
}

std::int64_t LayoutMemory::input_bytes(const Layer& layer) const {
  return layer.is_embedding ? 0 : weight_bytes_ * layer.rows * layer.in * samples_;
}

std::int64_t LayoutMemory::in_flight(const Layer& layer) const {
  if (schedule_.kind == ScheduleKind::gpipe) return schedule_.micro_batches;
  // 1f1b; of one stage one.
  const auto stage = std::ranges::find_if(stages_, [&](const Stage& s) { return layer.op < s.end(); });
  return std::min<std::int64_t>(schedule_.micro_batches, stages_.end() - stage);
}

MemoryAccount LayoutMemory::states(const Layer& layer, const Layout& layout) const {
  const std::int64_t p2 = layout.p2.total(), matrix = layer.matrix_elements();
  const std::int64_t held = layer.algorithm == MatmulAlgorithm::summa
                                ? ceil_div(matrix, layout.p0.total() * p2) + ceil_div(layer.parameters - matrix, p2)
                                : ceil_div(layer.parameters, layout.p1.total() * p2);
  const std::int64_t updated =
      shards_optimizer_ ? ceil_div(held, std::int64_t{copies_of_weight(layout, layer.algorithm).total()}) : held;
  return {
      .parameters = weight_bytes_ * held, .gradients = gradient_bytes_ * held, .optimizer = optimizer_bytes_ * updated};
}

std::int64_t LayoutMemory::lasting_bytes(const Layer& layer, const Layout& layout) const {
  const bool is_kept = layer.is_searched && !(recomputes_blocks_ && layer.block >= 0);
  const MemoryAccount held = states(layer, layout);
  // With one micro-batch gradients come as inputs go.
  const std::int64_t lasting = held.parameters + held.optimizer + (has_one_micro_batch_ ? 0 : held.gradients);
  return lasting + (is_kept ? in_flight(layer) * input_bytes(layer) / ranks_ * copies_of_input(layer, layout) : 0);
}

/// Two panels of each operand and of its gradient; and whole parts beside them, packed into pieces where several panels
/// are of one rank, with their gradients. A weight's gradient that is added to comes beside it, too.
std::int64_t LayoutMemory::panel_bytes(const Layer& layer, const Layout& layout) const {
  const std::int64_t panels = num_panels(layout, layer.shares_weight);
  const std::int64_t rows = layout.p0.total(), columns = layout.p2.total();
  const std::int64_t inputs = layer.rows * samples_ / (rows * layout.p1.total()) * layer.in;
  const std::int64_t weights = layer.in * layer.out / columns;
  const std::int64_t both = weight_bytes_ + gradient_bytes_;
  std::int64_t bytes = 2 * (2 * weight_bytes_ * inputs + both * weights) / panels;
  if (panels > columns) bytes += 2 * weight_bytes_ * inputs / columns;
  if (panels > rows) {
    bytes += both * weights / rows;
  } else if (!has_one_micro_batch_) {
    bytes += gradient_bytes_ * weights / rows;
  }
  return bytes;
}

MemoryAccount LayoutMemory::account(std::span<const Layout> layouts) const {
  MemoryAccount result;
  std::vector<std::int64_t> gradients;
  for (std::size_t l = 0; l < chain_.layers.size(); ++l) {
    const MemoryAccount held = states(chain_.layers[l], layouts[l]);
    result.parameters += held.parameters;
    result.optimizer += held.optimizer;
    gradients.push_back(held.gradients);
  }
  for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
    const int block = graph_.operators[o].block;
    MemoryAccount moment{.activations = moments_[o].activations / ranks_,
                         .temporary = moments_[o].activation_gradients / ranks_};
    for (std::size_t l = 0; l < chain_.layers.size(); ++l) {
      const Layer& layer = chain_.layers[l];
      const auto at = static_cast<std::size_t>(layer.op);
      if (!has_one_micro_batch_ || at >= o) moment.gradients += gradients[l];
      if (!layer.is_searched) continue;
      const std::int64_t gathered = input_bytes(layer) / ranks_ * (copies_of_input(layer, layouts[l]) - 1);
      const bool exists = at <= o && (!recomputes_blocks_ || layer.block < 0 || layer.block == block);
      if (exists) moment.activations += gathered;
      if (at != o) continue;
      if (layer.algorithm == MatmulAlgorithm::summa) {
        moment.temporary += panel_bytes(layer, layouts[l]);
        continue;
      }
      // The gradient of the input before it is scattered, that of the output once it is gathered.
      const std::int64_t output = weight_bytes_ * layer.rows * layer.out * samples_ / ranks_;
      moment.temporary += gathered + output * (layouts[l].p2.total() - 1);
    }
    if (moment.total() > result.gradients + result.activations + result.temporary) {
      result.gradients = moment.gradients;
      result.activations = moment.activations;
      result.temporary = moment.temporary;
    }
  }
  return result;
}

}  // namespace strata
