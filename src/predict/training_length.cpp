#include "predict/training_length.hpp"

#include <fmt/core.h>

#include "base/ceil_div.hpp"
#include "base/error.hpp"

namespace strata::predict {

TrainingLength training_length(const Experiment& experiment, const data::Order& order) {
  constexpr std::int64_t most_steps = 1'000'000'000'000;
  const TrainSection& train = experiment.train;
  if (train.epochs == 0) return {.num_steps = train.steps, .order = order};
  // Compared as quotients: the product of what is refused need not fit.
  if (order.num_samples / order.global_batch > most_steps / train.epochs) {
    throw UserError(fmt::format("{}: train.epochs: {} epochs of {} samples, {} a step; accepted: at most {} steps",
                                experiment.where("train.epochs"), train.epochs, order.num_samples, order.global_batch,
                                most_steps));
  }
  return {.num_steps = ceil_div(train.epochs * order.num_samples, order.global_batch), .order = order};
}

}  // namespace strata::predict
