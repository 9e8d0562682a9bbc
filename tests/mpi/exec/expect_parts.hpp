#pragma once

/// @file
/// What ranks that each hold a part of a model learned is what its reference did, and nothing of it is missing.

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "comm/world.hpp"
#include "mpi/exec/training.hpp"

namespace strata {

/// What this rank holds is a part of the reference, equal to the last bit; all ranks together hold all of it.
inline void expect_equal_parts(const comm::World& world, const Trained& ours, const Trained& reference,
                               const std::string& what) {
  std::string names;
  for (const auto& [name, values] : ours.parameters) {
    EXPECT_EQ(values, reference.parameters.at(name)) << name << ", " << what;
    names += name + "\n";
  }
  EXPECT_EQ(ours.losses, reference.losses) << what;
  const std::vector<std::string> held = world.all_gather(names);
  const std::string all = std::accumulate(held.begin(), held.end(), std::string());
  for (const auto& [name, values] : reference.parameters) {
    EXPECT_NE(all.find(name + "\n"), std::string::npos) << name << " is nowhere, " << what;
  }
}

}  // namespace strata
