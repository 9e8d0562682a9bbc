/// @file
/// The formula that Oases' planner counts by, against the simulated Programs of sub-batches, with costs that the test
/// writes down: equal to the nanosecond in forward, never below in the backward.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lower/rank_classes.hpp"
#include "planners/oases/chain_seconds.hpp"
#include "sim/simulate.hpp"
#include "unit/lower/tensor_parallel.hpp"

namespace strata::test_chain_formula {
namespace {

constexpr std::array degrees = {1, 2, 4, 8};
constexpr int num_nodes = 2 * num_layers + 2;  // the table, attention and MLP of each layer, the head

/// The product whose kernels have all of a node's compute.
std::string product_of(int node) {
  if (node == 0) return "embedding";
  if (node == num_nodes - 1) return "head";
  return fmt::format("block[{}].{}", (node - 1) / 2, node % 2 == 1 ? "attn.qkv" : "mlp.fc1");
}

/// Whole microseconds.
struct MadeUpCosts {
  std::array<std::array<double, 4>, num_nodes> forward{}, recompute{}, backward{};  ///< [node][degree]
  std::map<int, double> sum, gather;                                                ///< by ranks
};

MadeUpCosts random_costs(std::mt19937& generator, int most_compute, int most_communication) {
  const auto some = [&](int least, int most) { return 1e-6 * std::uniform_int_distribution<>(least, most)(generator); };
  MadeUpCosts costs;
  for (int node = 0; node < num_nodes; ++node) {
    const auto n = static_cast<std::size_t>(node);
    const bool is_in_block = node > 0 && node + 1 < num_nodes;
    for (std::size_t d = 0; d < degrees.size(); ++d) {
      costs.forward[n][d] = some(most_compute / 2, most_compute);
      costs.recompute[n][d] = is_in_block ? some(most_compute / 2, most_compute) : 0.0;
      costs.backward[n][d] = node > 0 ? some(most_compute / 2, most_compute) : 0.0;
    }
  }
  for (const int ranks : {2, 4, 8}) {
    costs.sum[ranks] = some(1, most_communication);
    costs.gather[ranks] = some(1, most_communication);
  }
  return costs;
}

class NodeCosts final : public CostModel {
 public:
  /// @param chosen by node. @param programs what the loss gathers is found there: it takes no time.
  NodeCosts(const MadeUpCosts& costs, const std::vector<int>& chosen, const std::vector<Program>& programs)
      : CostModel(1), costs_(costs) {
    for (int node = 0; node < num_nodes; ++node) {
      const auto n = static_cast<std::size_t>(node), d = static_cast<std::size_t>(chosen[n]);
      kernels_[{Phase::forward, product_of(node)}] = costs.forward[n][d];
      kernels_[{Phase::recompute, product_of(node)}] = costs.recompute[n][d];
      kernels_[{Phase::backward, product_of(node)}] = costs.backward[n][d];
    }
    std::set<std::int64_t> others;
    for (const Program& program : programs) {
      for (const Instruction& in : program.body) {
        if (!in.is_collective() || in.collective != Collective::all_gather) continue;
        (in.name == "loss" ? free_bytes_ : others).insert(priced_bytes(program, in));
      }
    }
    for (const std::int64_t bytes : others) EXPECT_FALSE(free_bytes_.contains(bytes));
  }
  CostSource source() const override { return CostSource::paper; }
  std::string description() const override { return "made up"; }
  Cost kernel(const Program&, const Instruction& in) const override {
    if (in.kernel == Kernel::linear_backward_weight) return {};
    const auto found = kernels_.find({in.phase, in.name});
    return {found == kernels_.end() ? 0.0 : found->second, Basis::formula};
  }
  CollectiveCost collective(Collective kind, std::int64_t bytes, const Placement& place) const override {
    if (kind == Collective::all_gather && free_bytes_.contains(bytes)) return {};
    const auto& by_ranks = kind == Collective::all_gather ? costs_.gather : costs_.sum;
    return {by_ranks.at(place.shape.total()), Basis::formula, 0};
  }

 private:
  const MadeUpCosts& costs_;
  std::map<std::pair<Phase, std::string>, double> kernels_;
  std::set<std::int64_t> free_bytes_;
};

Chain chain_of(const MadeUpCosts& costs, int sub_batches) {
  Chain chain{.sub_batches = sub_batches};
  for (std::size_t n = 0; n < num_nodes; ++n) {
    auto& node = chain.nodes.emplace_back();
    for (std::size_t d = 0; d < degrees.size(); ++d) {
      const double sum = d == 0 ? 0.0 : costs.sum.at(degrees[d]);
      const bool is_first = n == 0, is_last = n + 1 == num_nodes;
      node.push_back({.forward = {costs.forward[n][d], is_last ? 0.0 : sum},
                      .backward = {costs.recompute[n][d] + costs.backward[n][d], is_first ? 0.0 : sum}});
    }
    if (n == 0) continue;
    auto& edge = chain.gathers.emplace_back();
    for (const int from : degrees) {
      for (const int to : degrees) {
        const double seconds = from == to ? 0.0 : costs.gather.at(std::max(from, to) / std::min(from, to));
        edge.push_back(from < to ? GatherSeconds{.forward = seconds} : GatherSeconds{.backward = seconds});
      }
    }
  }
  return chain;
}

struct Ends {
  std::int64_t forward_ns = 0, backward_ns = 0;
};

Ends simulated(const MadeUpCosts& costs, const std::vector<int>& tensor_ranks, const std::vector<int>& chosen,
               int sub_batches) {
  Plan plan = plan_of(tensor_ranks, Recompute::after_communication);
  plan.schedule.sub_batches = sub_batches;
  plan.schedule.cross_pass = sub_batches > 1;
  plan.overlap.all_reduce = "none";
  const ModelGraph graph = gpt();
  const RankClasses classes = rank_classes(plan, graph);
  std::vector<Program> programs;
  for (const int rank : classes.representatives) programs.push_back(lower(plan, graph, rank, no_workspace));
  Job job{.programs = {}, .class_of_rank = classes.class_of_rank, .ranks_per_node = 8};
  for (const Program& program : programs) job.programs.push_back(&program);
  Ends ends;
  for (const TimelineEvent& e : simulate(job, NodeCosts(costs, chosen, programs)).events) {
    const Program& program =
        *job.programs[static_cast<std::size_t>(classes.class_of_rank[static_cast<std::size_t>(e.rank)])];
    const Phase phase = program.body[static_cast<std::size_t>(e.instruction)].phase;
    if (phase == Phase::forward) ends.forward_ns = std::max(ends.forward_ns, e.end_ns);
    if (phase == Phase::backward) ends.backward_ns = std::max(ends.backward_ns, e.end_ns);
  }
  return ends;
}

/// Degrees by layer → choices by node.
std::vector<int> choices_of(const std::vector<int>& tensor_ranks) {
  std::vector<int> choices;
  for (int node = 0; node < num_nodes; ++node) {
    const int layer = std::clamp((node - 1) / 2, 0, num_layers - 1);
    const auto found = std::ranges::find(degrees, tensor_ranks[static_cast<std::size_t>(node == 0 ? 0 : layer)]);
    choices.push_back(static_cast<int>(found - degrees.begin()));
  }
  return choices;
}

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

const std::vector<std::vector<int>> uniform_and_mixed = {{2, 2, 2}, {4, 4, 4}, {8, 8, 8}, {2, 4, 8}, {8, 4, 2},
                                                         {2, 8, 2}, {4, 2, 4}, {1, 2, 4}, {4, 1, 2}, {1, 8, 1}};

TEST(ChainFormula, ForwardIsTheSimulatedOneAndBackwardIsABound) {
  std::mt19937 generator(1);
  int gaps = 0;
  for (const std::vector<int>& tensor_ranks : uniform_and_mixed) {
    const std::vector<int> chosen = choices_of(tensor_ranks);
    for (int round = 0; round < 12; ++round) {
      const int sub_batches = 1 + round % 2;
      const MadeUpCosts costs = random_costs(generator, 50, round % 3 == 0 ? 25 : 100);
      const Chain chain = chain_of(costs, sub_batches);
      const double forward = forward_seconds(chain, chosen), both = chain_seconds(chain, chosen);
      const Ends ends = simulated(costs, tensor_ranks, chosen, sub_batches);
      EXPECT_EQ(ends.forward_ns, nanoseconds(forward)) << testing::PrintToString(tensor_ranks) << ", round " << round;
      EXPECT_LE(ends.backward_ns, nanoseconds(both)) << testing::PrintToString(tensor_ranks) << ", round " << round;
      gaps += ends.backward_ns < nanoseconds(both) ? 1 : 0;
    }
  }
  EXPECT_GT(gaps, 0) << "a recomputation that waits for no gradient runs under what the formula lets it wait for";
}

/// No sum takes longer than the compute on either side of it: nothing can be gained behind it.
TEST(ChainFormula, BackwardIsTheSimulatedOneWhereComputeHidesAllSums) {
  std::mt19937 generator(2);
  for (const std::vector<int>& tensor_ranks : {std::vector{2, 2, 2}, {4, 4, 4}, {8, 8, 8}}) {
    const std::vector<int> chosen = choices_of(tensor_ranks);
    for (int round = 0; round < 8; ++round) {
      const MadeUpCosts costs = random_costs(generator, 100, 50);
      const Ends ends = simulated(costs, tensor_ranks, chosen, 2);
      EXPECT_EQ(ends.backward_ns, nanoseconds(chain_seconds(chain_of(costs, 2), chosen)));
    }
  }
}

}  // namespace
}  // namespace strata::test_chain_formula
