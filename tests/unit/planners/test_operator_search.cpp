/// @file
/// The searches for OSDP's choices on plain instances: the exact one against brute force and the paper's depth-first
/// search over thousands of random instances, what must hold of any answer, and the certificate where sizes explode.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "planners/operators/depth_first.hpp"
#include "planners/search/exact_choices.hpp"
#include "planners/search/pareto_front.hpp"

namespace strata::test_operator_search {
namespace {

constexpr std::int64_t unlimited = std::int64_t{1} << 60;

std::vector<std::int64_t> up_to(std::int64_t last) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(last));
  std::iota(all.begin(), all.end(), std::int64_t{1});
  return all;
}

/// Every operator takes every choice; nothing is pruned, nothing is counted.
class BruteForce {
 public:
  BruteForce(const ChoiceProblem& problem, std::int64_t samples) : problem_(problem), samples_(samples) {
    for (const OperatorClass& c : problem.classes) {
      for (int i = 0; i < c.count; ++i) operators_.push_back(&c);
    }
    visit(0, 0, 0, problem.compute_seconds(samples));
  }
  double least_seconds = std::numeric_limits<double>::infinity();

 private:
  void visit(std::size_t depth, std::int64_t resident, std::int64_t workspace, double seconds) {
    if (depth == operators_.size()) {
      const bool fits = problem_.peak_bytes(resident, workspace, samples_) <= problem_.capacity_bytes;
      if (fits) least_seconds = std::min(least_seconds, seconds);
      return;
    }
    for (const Choice& choice : operators_[depth]->choices) {
      visit(depth + 1, resident + choice.resident_bytes, std::max(workspace, choice.workspace_bytes),
            seconds + choice.seconds);
    }
  }
  const ChoiceProblem& problem_;
  std::int64_t samples_;
  std::vector<const OperatorClass*> operators_;
};

/// Like OSDP's where @p like_osdp: operators of 16 bytes an element, shards of an Nth, slices; else anything at all.
ChoiceProblem random_problem(std::mt19937_64& random, int most_operators, bool like_osdp) {
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  ChoiceProblem problem;
  int left = static_cast<int>(between(1, most_operators));
  std::int64_t least = 0, most = 0;
  const std::int64_t ranks = between(2, 16);
  while (left > 0) {
    OperatorClass c;
    c.count = static_cast<int>(between(1, left));
    left -= c.count;
    if (like_osdp) {
      const std::int64_t size = between(1, 40) * 64;
      const auto pass = [&](std::int64_t bytes) {
        return static_cast<double>(ranks - 1) * (3.0 + static_cast<double>(bytes) / static_cast<double>(ranks));
      };
      const std::int64_t slices = most_operators > 10 ? 0 : between(0, 3);
      c.choices.push_back({2.0 * pass(size), 4 * size, 0});
      c.choices.push_back({3.0 * pass(size), 4 * size / ranks, size});
      for (std::int64_t j = 1; slices > 1 && j <= slices; ++j) {
        const std::int64_t part = size / slices;
        c.choices.push_back({2.0 * pass(size - j * part) + static_cast<double>(3 * j) * pass(part),
                             4 * (size - j * part) + 4 * j * part / ranks, part});
      }
    } else {
      const std::int64_t choices = most_operators > 10 ? 2 : between(1, 4);
      for (std::int64_t k = 0; k < choices; ++k) {
        c.choices.push_back({static_cast<double>(between(0, 200)) / 8.0, between(0, 1000), between(0, 3) * 100});
      }
    }
    std::int64_t low = unlimited, high = 0;
    for (const Choice& choice : c.choices) {
      low = std::min(low, choice.resident_bytes);
      high = std::max(high, choice.resident_bytes);
    }
    least += c.count * low;
    most += c.count * high;
    problem.classes.push_back(std::move(c));
  }
  const std::int64_t activations = between(1, 1 + most / 3);
  // Gradients come as activations go: not a sum, but rising in everything.
  problem.peak_bytes = [activations](std::int64_t resident, std::int64_t workspace, std::int64_t samples) {
    return resident - resident / 4 + std::max(resident / 4, samples * activations) + workspace;
  };
  problem.capacity_bytes = between(least / 2, most + 4 * activations);
  const double gamma = static_cast<double>(between(1, 1000));
  problem.compute_seconds = [gamma](std::int64_t samples) { return gamma * static_cast<double>(samples); };
  return problem;
}

void expect_consistent(const ChoiceProblem& problem, const BatchAnswer& answer) {
  for (std::size_t c = 0; c < problem.classes.size(); ++c) {
    EXPECT_EQ(std::accumulate(answer.counts[c].begin(), answer.counts[c].end(), 0), problem.classes[c].count);
  }
  EXPECT_LE(answer.peak_bytes, problem.capacity_bytes);
  const BatchAnswer again = evaluated(problem, answer.counts, answer.samples);
  EXPECT_EQ(again.seconds, answer.seconds);
  EXPECT_EQ(again.peak_bytes, answer.peak_bytes);
}

/// @return how many instances have an answer.
int compare_with_brute_force(int instances, int most_operators, std::int64_t last_batch, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  int feasible = 0;
  for (int i = 0; i < instances; ++i) {
    const ChoiceProblem problem = random_problem(random, most_operators, i % 2 == 0);
    const std::vector<std::int64_t> samples = up_to(last_batch);
    const std::vector<BatchAnswer> answers = search_exactly(problem, samples);
    const DepthFirstAnswer paper = search_depth_first(problem, samples, std::int64_t{1} << 40);
    EXPECT_TRUE(paper.finished);
    std::size_t next = 0;
    for (const std::int64_t b : samples) {
      const double least = BruteForce(problem, b).least_seconds;
      EXPECT_EQ(least_peak_bytes(problem, b) <= problem.capacity_bytes, std::isfinite(least));
      if (std::isinf(least)) continue;
      if (next >= answers.size() || next >= paper.answers.size()) {
        ADD_FAILURE() << "instance " << i << ": nothing found for b = " << b;
        return feasible;
      }
      const BatchAnswer& answer = answers[next];
      EXPECT_EQ(answer.samples, b);
      EXPECT_NEAR(answer.seconds, least, 1e-9 * least) << "instance " << i << ", b = " << b;
      EXPECT_NEAR(paper.answers[next].seconds, least, 1e-9 * least) << "instance " << i << ", b = " << b;
      EXPECT_EQ(answer.gap, 0.0);
      EXPECT_LE(lower_bound_seconds(problem, b), least * (1.0 + 1e-12));
      expect_consistent(problem, answer);
      ++next;
    }
    EXPECT_EQ(next, answers.size()) << "instance " << i;
    EXPECT_EQ(next, paper.answers.size()) << "instance " << i;
    feasible += next > 0 ? 1 : 0;
    if (testing::Test::HasFailure()) break;
  }
  return feasible;
}

TEST(OperatorSearch, IsTheBruteForceOfFewOperatorsWithManyChoices) {
  EXPECT_GT(compare_with_brute_force(3000, 5, 4, 1), 1500);
}

TEST(OperatorSearch, IsTheBruteForceOfUpToSixteenOperators) { EXPECT_GT(compare_with_brute_force(120, 16, 3, 2), 60); }

TEST(OperatorSearch, IsThePapersSearchWhereThatFinishes) {
  std::mt19937_64 random(3);
  int finished = 0;
  for (int i = 0; i < 1000; ++i) {
    const ChoiceProblem problem = random_problem(random, 9, true);
    const std::vector<std::int64_t> samples = up_to(6);
    const DepthFirstAnswer paper = search_depth_first(problem, samples, 20'000);
    const std::vector<BatchAnswer> answers = search_exactly(problem, samples);
    ASSERT_LE(paper.answers.size(), answers.size());
    for (std::size_t a = 0; a < paper.answers.size(); ++a) {
      const double difference = paper.answers[a].seconds - answers[a].seconds;
      EXPECT_GE(difference, -1e-9 * answers[a].seconds);
      // Where its nodes ran out it says at most how far off it may be.
      EXPECT_LE(difference, (paper.answers[a].gap + 1e-9) * paper.answers[a].seconds) << "instance " << i;
    }
    finished += paper.finished ? 1 : 0;
  }
  EXPECT_GT(finished, 500);
  EXPECT_LT(finished, 1000);  // else the second expectation was never tried
}

TEST(OperatorSearch, MoreMemoryIsNeverSlower) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 200; ++i) {
    ChoiceProblem problem = random_problem(random, 40, true);
    const std::vector<std::int64_t> samples = {2};
    double last = std::numeric_limits<double>::infinity();
    const std::int64_t least = least_peak_bytes(problem, 2);
    problem.capacity_bytes = least - 1;
    EXPECT_TRUE(search_exactly(problem, samples).empty());
    for (int step = 0; step <= 20; ++step) {
      problem.capacity_bytes = least + step * least / 20;
      const std::vector<BatchAnswer> answers = search_exactly(problem, samples);
      ASSERT_EQ(answers.size(), 1U);
      EXPECT_LE(answers.front().seconds, last * (1.0 + 1e-12));
      last = answers.front().seconds;
    }
    problem.capacity_bytes = unlimited;
    EXPECT_DOUBLE_EQ(search_exactly(problem, samples).front().seconds, evaluated(problem, fastest(problem), 2).seconds);
  }
}

/// One operator of 100 bytes whose ranks gather 90 of them; computing is cheap, so that time is communication.
ChoiceProblem one_operator(double extra_seconds) {
  ChoiceProblem problem;
  problem.classes = {{.choices = {{1.0, 100, 0}, {1.0 + extra_seconds, 10, 0}}, .count = 1}};
  problem.capacity_bytes = 120;
  problem.peak_bytes = [](std::int64_t resident, std::int64_t workspace, std::int64_t samples) {
    return resident + workspace + 20 * samples;
  };
  problem.compute_seconds = [](std::int64_t samples) { return 0.01 * static_cast<double>(samples); };
  return problem;
}

TEST(OperatorSearch, TheBestBatchIsNotAlwaysTheLargest) {
  // b = 1 fits replicated, b = 2 … 5 only sharded: worth it if sharding costs less than five times the time.
  for (const auto& [extra, best] : {std::pair{1.0, 5}, {10.0, 1}}) {
    const ChoiceProblem problem = one_operator(extra);
    const std::vector<BatchAnswer> answers = search_exactly(problem, up_to(8));
    ASSERT_EQ(answers.size(), 5U);
    EXPECT_EQ(best_of(answers)->samples, best);
  }
  EXPECT_EQ(best_of({}), nullptr);
}

TEST(OperatorSearch, WorkspaceIsAMaximumAndNotASum) {
  ChoiceProblem problem;
  problem.classes = {{.choices = {{1.0, 100, 0}, {2.0, 10, 50}}, .count = 8}};
  problem.peak_bytes = [](std::int64_t resident, std::int64_t workspace, std::int64_t) { return resident + workspace; };
  problem.compute_seconds = [](std::int64_t) { return 0.0; };
  problem.capacity_bytes = 8 * 10 + 50;
  const std::vector<BatchAnswer> answers = search_exactly(problem, up_to(1));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.front().counts, (Counts{{0, 8}}));
  EXPECT_EQ(answers.front().peak_bytes, 130);
}

TEST(OperatorSearch, SizesWithNothingInCommonLeaveAnHonestGap) {
  std::mt19937_64 random(5);
  ChoiceProblem problem = random_problem(random, 1, false);
  problem.classes.clear();
  std::int64_t most = 0;
  for (int c = 0; c < 30; ++c) {
    const auto size = static_cast<std::int64_t>(random() % 1'000'000'007);
    problem.classes.push_back(
        {.choices = {{0.0, size, 0}, {static_cast<double>(random() % 1'000'003), 0, 0}}, .count = 1});
    most += size;
  }
  problem.capacity_bytes = most / 2;
  problem.peak_bytes = [](std::int64_t resident, std::int64_t, std::int64_t) { return resident; };
  const std::vector<BatchAnswer> exact = search_exactly(problem, up_to(1), {.max_front = 1'000'000});
  const std::vector<BatchAnswer> coarse = search_exactly(problem, up_to(1), {.max_front = 50});
  ASSERT_EQ(exact.size(), 1U);
  ASSERT_EQ(coarse.size(), 1U);
  EXPECT_EQ(exact.front().gap, 0.0);
  EXPECT_GT(coarse.front().gap, 0.0);
  EXPECT_GE(exact.front().seconds, coarse.front().seconds * (1.0 - coarse.front().gap) - 1e-9);
  EXPECT_LE(exact.front().seconds, coarse.front().seconds);
  expect_consistent(problem, coarse.front());
}

/// 48 layers of the table of times and MiB that the authors publish (Youhe-Jiang/IJCAI2023-OptimalShardedDataParallel,
/// cb1edf3, osdp_modules/profiler_output.py; 96 sequences a rank): neither, attention, MLP, or both sharded.
ChoiceProblem published(const std::vector<Choice>& layer) {
  ChoiceProblem problem;
  problem.classes = {{.choices = layer, .count = 48}};
  problem.capacity_bytes = 8192 - 800;  // what they take off for workspace
  problem.peak_bytes = [](std::int64_t resident, std::int64_t, std::int64_t) { return resident; };
  problem.compute_seconds = [](std::int64_t) { return 0.0; };
  return problem;
}

TEST(OperatorSearch, TheAuthorsTableGivesTheAuthorsPlan) {
  const ChoiceProblem of_1536 =
      published({{0.051672141, 377, 0}, {0.054875135, 271, 0}, {0.060699721, 147, 0}, {0.069794059, 116, 0}});
  const std::vector<BatchAnswer> answers = search_exactly(of_1536, up_to(1));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.front().counts, (Counts{{0, 2, 46, 0}}));
  EXPECT_EQ(answers.front().peak_bytes + 800, 8104);  // their README measures 8057.35
  EXPECT_NEAR(answers.front().seconds, 2.902, 0.0005);
  // Their README's own example, where their planner takes the least of an empty list.
  const ChoiceProblem of_2048 =
      published({{0.091735707, 672, 0}, {0.098488801, 486, 0}, {0.11049611, 288, 0}, {0.127580418, 177, 0}});
  EXPECT_TRUE(search_exactly(of_2048, up_to(1)).empty());
  EXPECT_EQ(least_peak_bytes(of_2048, 1) + 800, 9296);
}

TEST(ParetoFront, KeepsWhatNothingBeatsAndSumsEveryPair) {
  const ParetoFront front = front_of({{5, 5.0}, {1, 9.0}, {5, 4.0}, {7, 4.0}, {6, 6.0}, {9, 1.0}});
  ASSERT_EQ(front.size(), 3U);
  EXPECT_EQ(front[1].resident_bytes, 5);
  EXPECT_EQ(front[1].seconds, 4.0);
  const ParetoFront sum = sum_of(front, front);
  for (const FrontPoint& a : front) {
    for (const FrontPoint& b : front) {
      EXPECT_TRUE(std::ranges::any_of(sum, [&](const FrontPoint& s) {
        return s.resident_bytes <= a.resident_bytes + b.resident_bytes && s.seconds <= a.seconds + b.seconds;
      }));
    }
  }
  for (const FrontPoint& s : sum) {
    EXPECT_EQ(s.seconds,
              front[static_cast<std::size_t>(s.first)].seconds + front[static_cast<std::size_t>(s.second)].seconds);
  }
}

}  // namespace
}  // namespace strata::test_operator_search
