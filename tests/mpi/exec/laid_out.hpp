#pragma once

/// @file
/// What tests of tensor layouts share: plans whose rules say how ranks are used, and networks of sizes that all degrees
/// divide.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/shards.hpp"
#include "mpi/exec/networks.hpp"

namespace strata {

class LaidOut : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  int size() const { return world.size(); }
  /// Two nodes where they come out even.
  Mesh mesh() const {
    const int nodes = size() % 4 == 0 ? 2 : 1;
    return {.nodes = nodes, .ranks_per_node = size() / nodes, .axes = {}};
  }
  Factor grid() const { return whole_grid(mesh()); }

  Plan laid_out(const Training& training, std::vector<OperatorRule> rules) const {
    Plan plan = training.plan;
    plan.strategy = "laid out";
    plan.mesh = mesh();
    plan.operators = std::move(rules);
    return plan;
  }

  Trained alone(const Training& training) { return train(training, "single", 1, world, engine); }
};

/// Sizes that all degrees of 8 ranks divide.
inline Training exact_for_layouts(int micro_batches) { return exact(micro_batches, {16, 32, 48, 8}); }

/// Sizes that all degrees of 12 ranks divide, which leaves nothing exact.
inline Training rounded_for_layouts(int micro_batches) {
  Training training{.graph = build_model({.name = "mlp", .widths = {24, 48, 36, 12}}), .plan = sgd(24 * micro_batches)};
  training.plan.schedule.micro_batches = micro_batches;
  training.classes = 12;
  return training;
}

/// A model whose sizes 2, 4, 8 and 12 ranks divide.
inline RealModel transformer(const char* name) {
  return {name,
          {.name = name,
           .layers = 2,
           .hidden = 48,
           .heads = 24,
           .ffn_hidden = 96,
           .vocabulary = 120,
           .sequence_length = 9,
           .dropout = 0.1}};
}

}  // namespace strata
