/// @file
/// Every nested triple of factors over a grid of ranks, every way to deal optimizer states, exact inputs compared with
/// ==.

#include "mpi/exec/sharding.hpp"

namespace strata::test_sharding_grid {
namespace {

/// Every nested triple of factors with g = p or g = os.
std::vector<StateFactors> all_states(const Factor& grid) {
  std::vector<Factor> factors;
  for (int in_node = 1; in_node <= grid.in_node; ++in_node) {
    for (int nodes = 1; nodes <= grid.nodes; ++nodes) {
      if (divides({in_node, nodes}, grid)) factors.push_back({in_node, nodes});
    }
  }
  std::vector<StateFactors> states;
  for (const Factor& p : factors) {
    for (const Factor& os : factors) {
      if (!divides(p, os)) continue;
      states.push_back({.p = p, .g = p, .os = os});
      if (p != os) states.push_back({.p = p, .g = os, .os = os});
    }
  }
  return states;
}

class ShardingGrid : public Sharding {};

TEST_F(ShardingGrid, EveryWayIsExactOnExactInputs) {
  for (const int micro_batches : {1, 2}) {
    const Training training = exact(micro_batches);
    const Trained reference = train(training, "single", 1, world, engine);
    for (const StateFactors& state : all_states(grid())) {
      for (const Way& way : ways) {
        const Trained ours = train_plan(training, plan(training, state, way), world, engine);
        for (const auto& [parameter, values] : reference.parameters) {
          EXPECT_EQ(ours.parameters.at(parameter), values) << parameter << ", " << name(state, way, micro_batches);
        }
        EXPECT_EQ(ours.losses, reference.losses) << name(state, way, micro_batches);
      }
    }
  }
}

/// Groups of neighbours on the grid, where other nodes stand than the launcher's order has there.
TEST_F(ShardingGrid, NodesInAnyOrderAreExact) {
  const Training training = exact(2);
  const Trained reference = train(training, "single", 1, world, engine);
  const Factor pair{1, std::min(2, size())}, all{1, size()};
  for (const StateFactors& state : {StateFactors{.p = pair, .g = pair, .os = pair},
                                    {.p = pair, .g = all, .os = all},
                                    {.p = {}, .g = pair, .os = pair},
                                    {.p = all, .g = all, .os = all, .p_backward = pair}}) {
    for (const Way& way : ways) {
      Plan ordered = plan(training, state, way);
      ordered.mesh = {.nodes = size(), .ranks_per_node = 1, .axes = {{"data", size()}}, .placement = "leaf-first"};
      for (int node = 0; node < size(); ++node) ordered.mesh.node_order.push_back((3 * node + 1) % size());
      const Trained ours = train_plan(training, ordered, world, engine);
      EXPECT_EQ(ours.parameters, reference.parameters) << name(state, way, 2);
      EXPECT_EQ(ours.losses, reference.losses) << name(state, way, 2);
    }
  }
}

}  // namespace
}  // namespace strata::test_sharding_grid
