#pragma once

/// @file
/// Whether two trainings learned the same, up to rounding.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mpi/exec/training.hpp"

namespace strata {

/// What rounding may do, relative. `parameter`: to a tensor; `moved`: to how far it has come; `loss`, `norm`: to each.
struct Tolerance {
  double parameter = 1e-5;
  double moved = 1e-3;
  double loss = 1e-4;
  double norm = 1e-4;
};

/// @p ours may hold a part of the parameters that @p reference holds.
inline void expect_same(const Trained& ours, const Trained& reference, const std::string& what,
                        const Tolerance& tolerance = {}) {
  for (const auto& [parameter, values] : ours.parameters) {
    const std::vector<float>& after = reference.parameters.at(parameter);
    EXPECT_LE(relative_difference(values, after), tolerance.parameter) << parameter << ", " << what;
    // Biases start at zero and have moved little: what they moved by must agree too, up to the parameter's rounding.
    std::vector<float> moved(after.size());
    std::vector<float> apart(after.size());
    for (std::size_t k = 0; k < after.size(); ++k) {
      moved[k] = after[k] - reference.initial.at(parameter)[k];
      apart[k] = values[k] - after[k];
    }
    EXPECT_GT(norm(moved), 0.0) << parameter << ", " << what;
    EXPECT_LE(norm(apart), tolerance.moved * norm(moved) + 1e-7 * norm(after)) << parameter << ", " << what;
  }
  EXPECT_EQ(ours.losses.size(), reference.losses.size()) << what;
  for (std::size_t i = 0; i < std::min(ours.losses.size(), reference.losses.size()); ++i) {
    EXPECT_NEAR(ours.losses[i], reference.losses[i], tolerance.loss * reference.losses[i]) << what;
    if (!std::isnan(reference.norms[i])) {
      EXPECT_NEAR(ours.norms[i], reference.norms[i], tolerance.norm * reference.norms[i]) << what;
    }
  }
}

}  // namespace strata
