/// @file
/// Searches over layouts: the exact one against an exhaustive one on random problems and on the network of AutoDDL's
/// figure 8, and what the heuristics promise.

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "base/error.hpp"
#include "base/random.hpp"
#include "planners/layouts/coordinate_descent.hpp"
#include "planners/layouts/exact_layouts.hpp"
#include "planners/layouts/exhaustive_search.hpp"
#include "planners/layouts/metropolis_hastings.hpp"
#include "planners/layouts/random_search.hpp"
#include "planners/layouts/search_space.hpp"
#include "planners/search/branch_and_bound.hpp"
#include "planners/search/elimination.hpp"
#include "sharded.hpp"

namespace strata::test_layout_search {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t many = 1'000'000'000;

/// Layers in a row, with residuals around every second one where @p residuals; some pairs are impossible.
LayoutProblem random_problem(std::uint64_t seed, std::size_t layers, bool residuals) {
  Draws draws(seed, "problem");
  LayoutProblem problem;
  for (std::size_t v = 0; v < layers; ++v) {
    std::vector<double> cost(1 + draws.below(5));
    std::vector<std::int64_t> bytes(cost.size());
    for (double& c : cost) c = draws.uniform();
    for (std::int64_t& b : bytes) b = static_cast<std::int64_t>(draws.below(100));
    problem.variables.push_back({"layer " + std::to_string(v), std::make_shared<const std::vector<double>>(cost),
                                 std::make_shared<const std::vector<std::int64_t>>(bytes)});
  }
  const auto couple = [&](std::size_t a, std::size_t b) {
    CostTable table{problem.num_choices(a), problem.num_choices(b), {}};
    for (std::size_t i = 0; i < table.rows * table.columns; ++i) {
      table.values.push_back(draws.below(10) == 0 ? infinity : draws.uniform());
    }
    problem.couplings.push_back({a, b, std::make_shared<const CostTable>(std::move(table))});
  };
  for (std::size_t v = 0; v + 1 < layers; ++v) couple(v, v + 1);
  for (std::size_t v = 0; residuals && v + 2 < layers; v += 2) couple(v, v + 2);
  if (residuals && layers > 2) couple(0, 1);  // a pair may meet twice
  return problem;
}

TEST(LayoutSearch, ExactIsExhaustiveOnRandomProblems) {
  int possible = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    for (const bool residuals : {false, true}) {
      const LayoutProblem problem = random_problem(seed, 1 + seed % 7, residuals);
      const SearchAnswer exhaustive = search_exhaustively(problem, many), exact = search_exactly(problem);
      ASSERT_EQ(exact.choices.empty(), exhaustive.choices.empty()) << seed;
      if (exact.choices.empty()) continue;
      ++possible;
      EXPECT_NEAR(exact.cost, exhaustive.cost, 1e-12) << seed;
      EXPECT_NEAR(problem.cost(exact.choices), exhaustive.cost, 1e-12) << seed;
      EXPECT_EQ(exact.lower_bound, exact.cost);
    }
  }
  EXPECT_GT(possible, 600);
}

/// @return whether @p problem has a capacity now under which some strategies fit and the cheapest does not.
bool limit_capacity(LayoutProblem& problem) {
  const std::vector<int> least = smallest(problem), cheap = cheapest(problem);
  if (least.empty() || problem.bytes(least) == problem.bytes(cheap)) return false;
  problem.capacity_bytes = (problem.bytes(least) + problem.bytes(cheap)) / 2;
  return problem.capacity_bytes > 0;
}

TEST(LayoutSearch, ExactIsExhaustiveWithinACapacity) {
  int num_limited = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    LayoutProblem problem = random_problem(seed, 3 + seed % 4, seed % 2 == 0);
    if (!limit_capacity(problem)) continue;
    const SearchAnswer exhaustive = search_exhaustively(problem, many), exact = search_exactly(problem);
    ASSERT_FALSE(exact.choices.empty());
    EXPECT_LE(problem.bytes(exact.choices), problem.capacity_bytes);
    EXPECT_NEAR(exact.cost, exhaustive.cost, 1e-12) << seed;
    EXPECT_EQ(exact.cost, problem.cost(exact.choices)) << seed;
    EXPECT_EQ(exact.lower_bound, exact.cost) << seed;
    ++num_limited;
    problem.capacity_bytes = problem.bytes(smallest(problem)) - 1;
    if (problem.capacity_bytes > 0) {
      EXPECT_TRUE(search_exactly(problem).choices.empty());
    }
  }
  EXPECT_GT(num_limited, 200);
}

TEST(LayoutSearch, BranchAndBoundThatDoesNotComeToItsEndProvesNothing) {
  LayoutProblem problem = random_problem(7, 8, true);
  ASSERT_TRUE(limit_capacity(problem));
  SearchAnswer answer{.choices = smallest(problem), .lower_bound = 0.125};
  answer.cost = problem.cost(answer.choices);
  const double before = answer.cost;
  prove_cheapest(problem, std::array{0.0}, answer, 3);
  EXPECT_EQ(answer.lower_bound, 0.125);
  EXPECT_LE(answer.cost, before);
  EXPECT_LE(problem.bytes(answer.choices), problem.capacity_bytes);
  prove_cheapest(problem, std::array{0.0}, answer);
  EXPECT_NEAR(answer.cost, search_exhaustively(problem, many).cost, 1e-12) << "whatever the price";
  EXPECT_EQ(answer.lower_bound, answer.cost);
}

TEST(LayoutSearch, ExactIsExhaustiveWhereEveryLayerMeetsEveryOther) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    LayoutProblem problem = random_problem(seed, 5, true);
    problem.couplings.clear();
    Draws draws(seed, "couplings");
    for (std::size_t a = 0; a < 5; ++a) {
      for (std::size_t b = a + 1; b < 5; ++b) {
        CostTable table{problem.num_choices(a), problem.num_choices(b), {}};
        for (std::size_t i = 0; i < table.rows * table.columns; ++i) table.values.push_back(draws.uniform());
        problem.couplings.push_back({a, b, std::make_shared<const CostTable>(std::move(table))});
      }
    }
    EXPECT_NEAR(search_exactly(problem).cost, search_exhaustively(problem, many).cost, 1e-12) << seed;
  }
}

/// AutoDDL's figure 8, on its cluster.
struct Figure8 {
  explicit Figure8(int nodes, bool with_special_case = true)
      : chain(layer_chain(build_model({.name = "autoddl-mlp"}))), costs(plan_on(nodes), links()) {
    if (!with_special_case) {
      for (LayerLink& link : chain.links) link.is_unary = false;
    }
    space = layout_space(chain, costs, nullptr, {.samples = costs.samples()}, false);
  }
  static Plan plan_on(int nodes) {
    Plan plan;
    plan.mesh.nodes = nodes;
    plan.global_batch = 8192;
    return plan;
  }
  static LinkCosts links() { return {.across_alpha_seconds = 2e-5, .across_beta_seconds_per_byte = 1 / 1.5e9}; }
  LayerChain chain;
  StepCosts costs;
  LayoutSpace space;
};

TEST(LayoutSearch, ExactIsExhaustiveOnFigure8) {
  for (const int nodes : {16, 128, 4096}) {
    const Figure8 figure(nodes);
    EXPECT_EQ(figure.chain.layers.size(), 4U);
    EXPECT_EQ(figure.chain.links.size(), 3U);
    const SearchAnswer exhaustive = search_exhaustively(figure.space.problem, many);
    const SearchAnswer exact = search_exactly(figure.space.problem);
    EXPECT_NEAR(exact.cost, exhaustive.cost, 1e-12 * exact.cost) << nodes;
    EXPECT_GT(exhaustive.evaluations, 1000) << nodes;
  }
}

TEST(LayoutSearch, TheSpecialCaseChangesAnOptimum) {
  const Figure8 with(8), without(8, false);
  const SearchAnswer best = search_exactly(with.space.problem), plain = search_exactly(without.space.problem);
  EXPECT_LT(best.cost, plain.cost);
  EXPECT_NE(with.space.layouts(best.choices), without.space.layouts(plain.choices));
  EXPECT_GT(without.space.problem.cost(best.choices), plain.cost);
}

TEST(LayoutSearch, HeuristicsAreReproducibleAndNeverBeatTheOptimum) {
  const Figure8 figure(128);
  const LayoutProblem& problem = figure.space.problem;
  const double optimum = search_exactly(problem).cost;
  const auto check = [&](const SearchAnswer& answer, const SearchAnswer& again) {
    EXPECT_EQ(answer.choices, again.choices);
    EXPECT_EQ(answer.evaluations, again.evaluations);
    EXPECT_GE(answer.cost, optimum * (1 - 1e-12));
    EXPECT_NEAR(problem.cost(answer.choices), answer.cost, 1e-12 * answer.cost);
    ASSERT_FALSE(answer.trace.empty());
    EXPECT_EQ(answer.trace.back().cost, answer.cost);
    for (std::size_t i = 1; i < answer.trace.size(); ++i) {
      EXPECT_LT(answer.trace[i].cost, answer.trace[i - 1].cost);
      EXPECT_GT(answer.trace[i].evaluations, answer.trace[i - 1].evaluations);
    }
  };
  const SearchAnswer random = search_at_random(problem, 5000, 7);
  check(random, search_at_random(problem, 5000, 7));
  EXPECT_EQ(random.evaluations, 5000);
  const SearchAnswer walk = search_metropolis_hastings(problem, 0.01, 5000, 7);
  check(walk, search_metropolis_hastings(problem, 0.01, 5000, 7));
  EXPECT_EQ(walk.evaluations, 5000);
  EXPECT_GT(walk.acceptance_rate, 0.0);
  EXPECT_LT(walk.acceptance_rate, 1.0);
  const SearchAnswer descent = search_coordinate_descent(problem, 10, 7);
  check(descent, search_coordinate_descent(problem, 10, 7));
  EXPECT_NE(random.choices, search_at_random(problem, 5000, 8).choices);
  // A walk that is hot accepts all, one that is cold only what is not worse.
  EXPECT_GT(search_metropolis_hastings(problem, 1e9, 2000, 7).acceptance_rate, 0.99);
  EXPECT_LT(search_metropolis_hastings(problem, 1e-9, 2000, 7).acceptance_rate, walk.acceptance_rate);
}

TEST(LayoutSearch, DescentEndsWhereNoLayerAloneDoesBetter) {
  const Figure8 figure(128);
  const LayoutProblem& problem = figure.space.problem;
  SearchAnswer answer;
  BestSoFar best(answer);
  std::vector<int> choices(problem.variables.size(), 0);
  const double cost = descend(problem, choices, best);
  for (std::size_t v = 0; v < choices.size(); ++v) {
    std::vector<int> other = choices;
    for (int c = 0; c < static_cast<int>(problem.num_choices(v)); ++c) {
      other[v] = c;
      EXPECT_GE(problem.cost(other), cost);
    }
  }
}

TEST(LayoutSearch, TooManyStrategiesAreRefusedWithTheirNumber) {
  const LayoutProblem problem = random_problem(5, 7, false);
  EXPECT_THROW(search_exhaustively(problem, 1), Unsupported);
}

}  // namespace
}  // namespace strata::test_layout_search
