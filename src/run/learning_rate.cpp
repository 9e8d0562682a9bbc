#include "run/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace strata::run {

double learning_rate(const TrainSection& train, const predict::TrainingLength& length, std::int64_t step) {
  if (step < train.warmup_steps) {
    return train.learning_rate * static_cast<double>(step + 1) / static_cast<double>(train.warmup_steps);
  }
  const double t = static_cast<double>(step - train.warmup_steps);
  const std::int64_t decay_steps = train.decay_steps > 0 ? train.decay_steps : length.num_steps - train.warmup_steps;
  const double d = static_cast<double>(decay_steps);
  if (!train.decay_epochs.empty()) {
    const auto reached = std::ranges::upper_bound(train.decay_epochs, length.order.epoch(step));
    return train.learning_rate * std::pow(train.decay_factor, reached - train.decay_epochs.begin());
  }
  if (train.schedule == "step") {
    return train.learning_rate * std::pow(train.decay_factor, std::floor(t / d));
  }
  if (train.schedule == "cosine") {
    const double share = (1.0 + std::cos(std::numbers::pi * std::min(t / d, 1.0))) / 2.0;
    return train.min_learning_rate + (train.learning_rate - train.min_learning_rate) * share;
  }
  return train.learning_rate;
}

}  // namespace strata::run
