#pragma once

/// @file
/// Learning rate by step: linear warm-up, then constant, step or cosine.

#include <cstdint>

#include "config/experiment.hpp"
#include "predict/training_length.hpp"

namespace strata::run {

/// @param step from 0. Warm-up: learning_rate · (step + 1) / warmup_steps. After it, with t = step - warmup_steps and d
/// = decay_steps:
///   constant: learning_rate;
///   step: learning_rate · decay_factor^⌊t / d⌋, or with decay_epochs · decay_factor^(those that the step's epoch has
///   reached), whatever the warm-up;
///   cosine: min + (learning_rate - min) · (1 + cos(π · min(t / d, 1))) / 2, d = 0 meaning to the end of @p length.
double learning_rate(const TrainSection& train, const predict::TrainingLength& length, std::int64_t step);

}  // namespace strata::run
