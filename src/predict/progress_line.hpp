#pragma once

/// @file
/// A step as people know it: `step 10 loss 4.21 1234 tokens/s 56.7 GFLOP/s mfu 41.2 % mem 1.23 GiB`.

#include <string>

#include "results/rows.hpp"

namespace strata::predict {

/// @param facts for the unit, the arithmetic of a sample and the peak that MFU is a share of.
std::string progress_line(const results::AttemptFacts& facts, const results::StepRow& row);

/// `evaluated after 100 steps, epoch 2.00: loss 1.2345, top-1 56.78 %, top-5 90.12 % of 360 samples, 0.12 s`.
std::string evaluation_line(const results::EvaluationRow& row);

}  // namespace strata::predict
