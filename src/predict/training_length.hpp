#pragma once

/// @file
/// How long training is and where its epochs begin, in steps. What counts in epochs needs the data for it, so plans and
/// simulations, which have none, know nothing of it: none of theirs depends on how many steps there are.

#include <cstdint>

#include "config/experiment.hpp"
#include "data/order.hpp"

namespace strata::predict {

struct TrainingLength {
  std::int64_t num_steps = 0;  ///< of train.steps or train.epochs; 0: the rule of [measure] decides
  data::Order order;           ///< says which epoch a step begins in
};

/// As many steps as contain the epochs: ⌈epochs · num_samples / global_batch⌉; the last may reach into the next one.
/// @throws UserError naming train.epochs where these are more steps than train.steps accepts.
TrainingLength training_length(const Experiment& experiment, const data::Order& order);

}  // namespace strata::predict
