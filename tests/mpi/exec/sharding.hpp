#pragma once

/// @file
/// What tests of sharded states share: plans with given factors.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mpi/exec/networks.hpp"
#include "partition/shards.hpp"
#include "support/optimizer_ways.hpp"

namespace strata {

class Sharding : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  int size() const { return world.size(); }
  /// Two nodes where the ranks can be split.
  Factor grid() const { return size() % 2 == 0 && size() > 2 ? Factor{size() / 2, 2} : Factor{size(), 1}; }

  /// Many ranks share few cores: they see the models that differ most.
  std::vector<RealModel> models() const {
    std::vector<RealModel> all = real_models();
    if (size() > 2) std::erase_if(all, [](const RealModel& m) { return m.name != std::string_view("gpt"); });
    return all;
  }

  Plan plan(const Training& training, const StateFactors& state, const Way& way) const {
    Plan plan = training.plan;
    plan.strategy = "sharded";
    plan.mesh = {.nodes = grid().nodes, .ranks_per_node = grid().in_node, .axes = {{"data", size()}}};
    plan.operators = {{.match = "*", .state = state}};
    set_way(plan, way);
    return plan;
  }
  static std::string name(const StateFactors& s, const Way& way, int micro_batches) {
    return fmt::format("p {} g {} os {}, {}, {}, {} micro-batches", to_string(s.p), to_string(s.g), to_string(s.os),
                       way.sharding, way.gradients, micro_batches);
  }
};

}  // namespace strata
