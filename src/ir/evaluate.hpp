#pragma once

/// @file
/// Plan → bytes and seconds, as an interface: planners ask it, lower and sim answer it, app joins them.

#include <cstdint>

#include "ir/plan.hpp"

namespace strata {

struct Evaluation {
  std::int64_t peak_bytes = 0;  ///< of the fullest rank's arena
  std::int64_t bytes_sent = 0;  ///< by the rank that sends most, a step
  double step_seconds = 0.0;
};

class Evaluate {
 public:
  virtual ~Evaluate() = default;
  virtual Evaluation operator()(const Plan& plan) const = 0;
};

}  // namespace strata
