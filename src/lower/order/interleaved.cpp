#include "lower/order/interleaved.hpp"

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "lower/order/order_writer.hpp"
#include "partition/pipeline_passes.hpp"

namespace strata {

StepOrder interleaved_order(const StepShape& shape, const StepPart& part) {
  std::vector<int> stages;
  for (int stage = part.first_stage; stage < part.end_stage; stage += part.stages_apart) stages.push_back(stage);
  const PlaceInPipeline place{.place = part.first_stage,
                              .places = part.stages_apart,
                              .stages = static_cast<int>(stages.size()),
                              .micro_batches = shape.micro_batches,
                              .is_interleaved = true};
  STRATA_INVARIANT(place.stages >= 1 && place.places >= 1, "a rank of a pipeline has a stage or more");
  STRATA_INVARIANT(shape.micro_batches % place.places == 0,
                   "interleaved stages take as many micro-batches as ranks at once");
  OrderWriter order(shape, stages);
  for (const PipelinePass& pass : pipeline_passes(place)) {
    const int stage = stages[static_cast<std::size_t>(pass.turn)];
    if (pass.is_forward) {
      order.forward(stage, pass.micro_batch);
    } else {
      order.backward(stage, pass.micro_batch);
    }
  }
  order.update();
  return std::move(order).take();
}

}  // namespace strata
