#include "lower/order/interleaved.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "lower/order/order_writer.hpp"

namespace strata {

StepOrder interleaved_order(const StepShape& shape, const StepPart& part) {
  std::vector<int> stages;
  for (int stage = part.first_stage; stage < part.end_stage; stage += part.stages_apart) stages.push_back(stage);
  const int v = static_cast<int>(stages.size()), ranks = part.stages_apart, rank = part.first_stage;
  STRATA_INVARIANT(v >= 1 && ranks >= 1, "a rank of a pipeline has a stage or more");
  STRATA_INVARIANT(shape.micro_batches % ranks == 0, "interleaved stages take as many micro-batches as ranks at once");
  const int num_passes = v * shape.micro_batches;
  const int num_ahead = std::min(num_passes, 2 * (ranks - rank - 1) + (v - 1) * ranks);
  // Pass k is of the k mod S-th micro-batch of a round of S, and of the next of the v stages after every round.
  const auto micro_batch_of = [&](int k) { return k / (v * ranks) * ranks + k % ranks; };
  const auto turn_of = [&](int k) { return static_cast<std::size_t>(k / ranks % v); };
  OrderWriter order(shape, stages);
  const auto forward = [&](int k) { order.forward(stages[turn_of(k)], micro_batch_of(k)); };
  const auto backward = [&](int k) { order.backward(stages[stages.size() - 1 - turn_of(k)], micro_batch_of(k)); };
  for (int k = 0; k < num_ahead; ++k) forward(k);
  for (int k = num_ahead; k < num_passes; ++k) {
    forward(k);
    backward(k - num_ahead);
  }
  for (int k = num_passes - num_ahead; k < num_passes; ++k) backward(k);
  order.update();
  return std::move(order).take();
}

}  // namespace strata
