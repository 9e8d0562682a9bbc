/// @file
/// Orders of the replicas of a pyramid's stages, counted by hand and by the paper's formulas.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/stage_pyramid.hpp"
#include "lower/order/cyclic.hpp"
#include "lower/order/pyramid.hpp"

namespace strata::test_pyramid_order {
namespace {

constexpr std::int64_t kMostSteps = 512;

TEST(StagePyramid, RanksStandStageByStage) {
  const StagePyramid pyramid{4};
  EXPECT_EQ(pyramid.num_ranks(), 10);
  std::vector<std::pair<int, int>> places;
  for (int rank = 0; rank < 10; ++rank) {
    places.emplace_back(pyramid.stage_of(rank), pyramid.replica_of(rank));
    EXPECT_EQ(pyramid.rank_of(places.back().first, places.back().second), rank);
  }
  EXPECT_EQ(places, (std::vector<std::pair<int, int>>{
                        {0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {3, 0}}));
  EXPECT_EQ(pyramid.replicas_of(1), (std::vector{4, 5, 6}));
}

/// Ranks if every replica took the same micro-batches of every step: a micro-batch is at stage j for 2(N - j) of a
/// step's 2N time steps.
int ranks_of_a_map_that_stands_still(int n) {
  int ranks = 0;
  for (int j = 0; j < n; ++j) {
    const int each = n / (n - j);
    ranks += (n + each - 1) / each;
  }
  return ranks;
}

TEST(StagePyramid, NeedsFewerRanksBecauseItsMapTurns) {
  std::map<int, std::tuple<int, int, std::int64_t>> counted;  // ranks, of a map that stands still, steps to return
  for (const int n : {1, 2, 3, 4, 8}) {
    counted[n] = {StagePyramid{n}.num_ranks(), ranks_of_a_map_that_stands_still(n),
                  StagePyramid{n}.steps_to_return(kMostSteps)};
  }
  const decltype(counted) expected = {
      {1, {1, 1, 1}}, {2, {3, 3, 1}}, {3, {6, 7, 2}}, {4, {10, 11, 3}}, {8, {36, 43, 105}}};
  EXPECT_EQ(counted, expected);
  EXPECT_EQ(StagePyramid{11}.steps_to_return(kMostSteps), kMostSteps + 1) << "2520";
}

TEST(StagePyramid, AReplicaIsFreeWhenItsNextMicroBatchComes) {
  for (const int n : {2, 3, 4, 8}) {
    const StagePyramid pyramid{n};
    const std::int64_t steps = pyramid.steps_to_return(kMostSteps);
    for (int j = 0; j < n; ++j) {
      std::map<int, int> left;  // by replica: when it has done the backward of its last micro-batch
      for (int c = 0; c < 2 * steps * n; ++c) {
        const int replica = pyramid.replica_taking(j, c / n, c % n);
        EXPECT_EQ(replica, pyramid.replica_taking(j, c / n + steps, c % n));
        const int free = left.contains(replica) ? left[replica] : 2 * c + j;
        EXPECT_EQ(free, 2 * c + j) << "no earlier, and no later than need be";
        left[replica] = 2 * c + 2 * n - j;
      }
    }
  }
}

/// A segment and a parameter a stage.
StepShape pyramid_shape(int n) {
  StepShape shape{.micro_batches = n};
  for (int j = 0; j < n; ++j) {
    shape.segments.push_back({.stage = j, .first_operator = j, .num_operators = 1, .parameters = {j}});
  }
  return shape;
}

StepOrder order_of(const StepShape& shape, const FreshTable& fresh, int stage, int replica, int steps) {
  return pyramid_order(shape, fresh,
                       {.first_stage = stage,
                        .end_stage = stage + 1,
                        .end_micro_batch = shape.micro_batches,
                        .replica = replica,
                        .num_replicas = shape.num_stages() - stage},
                       steps);
}

std::vector<StepOrder> orders_of_all(const StepShape& shape, const FreshTable& fresh) {
  const StagePyramid pyramid{shape.num_stages()};
  const auto steps = static_cast<int>(pyramid.steps_to_return(kMostSteps));
  std::vector<StepOrder> orders;
  for (int rank = 0; rank < pyramid.num_ranks(); ++rank) {
    orders.push_back(order_of(shape, fresh, pyramid.stage_of(rank), pyramid.replica_of(rank), steps));
  }
  return orders;
}

/// Stage 1 of three has two replicas, which take the odd and the even micro-batches of all steps: those of a step take
/// turns. Whoever takes micro-batch 2 has the whole sum; the other one updates a micro-batch later.
TEST(PyramidOrder, ReplicasOfAStageTakeTurns) {
  const std::string head =
      "order micro_batches=3 sub_batches=1 steps_per_body=2\n"
      "segment 0 stage=0 operators=0..0 parameters=0\n"
      "segment 1 stage=1 operators=1..1 parameters=1\n"
      "segment 2 stage=2 operators=2..2 parameters=2\n";
  const StepShape shape = pyramid_shape(3);
  EXPECT_EQ(to_text(order_of(shape, freshest(3, 3), 1, 0, 2)), head +
                                                                   "forward 1 micro_batch=0 version=1\n"
                                                                   "backward 1 micro_batch=0 version=1\n"
                                                                   "update parameters=1 step=-1\n"
                                                                   "forward 1 micro_batch=2\n"
                                                                   "backward 1 micro_batch=2\n"
                                                                   "update parameters=1\n"
                                                                   "forward 1 micro_batch=1 step=1\n"
                                                                   "backward 1 micro_batch=1 step=1\n");
  EXPECT_EQ(to_text(order_of(shape, freshest(3, 3), 1, 1, 2)), head +
                                                                   "forward 1 micro_batch=1\n"
                                                                   "backward 1 micro_batch=1\n"
                                                                   "forward 1 micro_batch=0 step=1 version=1\n"
                                                                   "backward 1 micro_batch=0 step=1 version=1\n"
                                                                   "update parameters=1\n"
                                                                   "forward 1 micro_batch=2 step=1\n"
                                                                   "backward 1 micro_batch=2 step=1\n"
                                                                   "update parameters=1 step=1\n");
}

std::vector<FreshTable> tables_in_time(int n) {
  std::vector<FreshTable> all = {freshest(n, n)};
  for (std::size_t i = 0; i < all.front().size(); ++i) {
    for (std::size_t j = 0; j < all.front()[i].size(); ++j) {
      if (all.front()[i][j] == '0') continue;
      for (std::size_t t = all.size(); t-- > 0;) {
        all.push_back(all[t]);
        all.back()[i][j] = '0';
      }
    }
  }
  return all;
}

TEST(PyramidOrder, EveryRuleWithinTimeIsSound) {
  for (const int n : {1, 2, 3}) {
    for (const FreshTable& table : tables_in_time(n)) EXPECT_NO_THROW(verify(orders_of_all(pyramid_shape(n), table)));
  }
  for (const int n : {4, 5, 8}) {
    for (const FreshTable& table : {never_fresh(n, n), freshest(n, n)}) {
      EXPECT_NO_THROW(verify(orders_of_all(pyramid_shape(n), table))) << n;
    }
  }
}

TEST(PyramidOrder, WhatIsNotThereInTimeIsNotRead) {
  EXPECT_THROW(orders_of_all(pyramid_shape(2), {"11", "11"}), InternalError);
  EXPECT_THROW(orders_of_all(pyramid_shape(2), freshest(3, 3)), InternalError);
  EXPECT_THROW(order_of(pyramid_shape(3), freshest(3, 3), 1, 0, 1), InternalError) << "the map has not come round";
  // verify() finds by itself that a replica which updates late cannot read what it has not.
  std::vector<StepOrder> orders = orders_of_all(pyramid_shape(3), freshest(3, 3));
  for (OrderItem& item : orders[4].items) item.version = 0;
  EXPECT_THROW(verify(orders), InternalError);
}

/// A pass takes a time step, an update none, and each begins as soon as what it needs is there.
class AsSoonAsPossible {
 public:
  AsSoonAsPossible(const std::vector<StepOrder>& orders, int num_steps)
      : orders_(orders), next_(orders.size(), 0), free_(orders.size(), 0), num_steps_(num_steps) {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t r = 0; r < orders_.size(); ++r) {
        while (run_next(r)) goes_on = true;
      }
    }
  }
  /// By stage and micro-batch, counted over all steps: the time steps [first, second) from forward to backward.
  const std::map<std::pair<int, int>, std::pair<int, int>>& kept() const { return kept_; }
  int end() const { return *std::ranges::max_element(free_); }

 private:
  bool run_next(std::size_t r) {
    const StepOrder& order = orders_[r];
    const std::size_t size = order.items.size();
    const OrderItem& item = order.items[next_[r] % size];
    const int step = static_cast<int>(next_[r] / size) * order.steps_per_body + item.step;
    if (next_[r] / size > static_cast<std::size_t>(num_steps_ / order.steps_per_body)) return false;
    if (step < 0 || step >= num_steps_) return ++next_[r] > 0;
    const int n = order.shape.micro_batches;
    const int c = step * n + item.micro_batch;
    std::vector<std::optional<int>> needed;
    const auto ended = [&](Pass pass, int stage, int micro_batch) -> std::optional<int> {
      const auto found = ended_.find({pass, stage, micro_batch});
      return found == ended_.end() ? std::nullopt : std::optional(found->second);
    };
    if (item.pass == Pass::update) {
      for (int i = 0; i < n; ++i) needed.push_back(ended(Pass::backward, item.parameters.front(), step * n + i));
    } else if (item.pass == Pass::forward) {
      if (item.segment > 0) needed.push_back(ended(Pass::forward, item.segment - 1, c));
    } else {
      needed.push_back(ended(Pass::forward, item.segment, c));
      if (item.segment + 1 < n) needed.push_back(ended(Pass::backward, item.segment + 1, c));
    }
    int begin = free_[r];
    for (const auto& time : needed) {
      if (!time) return false;
      begin = std::max(begin, *time);
    }
    ++next_[r];
    free_[r] = begin + (item.pass == Pass::update ? 0 : 1);
    if (item.pass == Pass::update) return true;
    ended_[{item.pass, item.segment, c}] = free_[r];
    if (item.pass == Pass::forward) kept_[{item.segment, c}].first = begin;
    if (item.pass == Pass::backward) kept_[{item.segment, c}].second = free_[r];
    return true;
  }

  const std::vector<StepOrder>& orders_;
  std::vector<std::size_t> next_;
  std::vector<int> free_;
  int num_steps_;
  std::map<std::tuple<Pass, int, int>, int> ended_;
  std::map<std::pair<int, int>, std::pair<int, int>> kept_;
};

/// As many as on one device, and a training step takes 2N time steps, whatever is read: sec. 3.2 and fig. 1.
TEST(PyramidOrder, AtEveryTimeStepAsManyActivations) {
  for (const int n : {1, 2, 3, 4, 8}) {
    for (const FreshTable& table : {never_fresh(n, n), freshest(n, n)}) {
      const std::vector<StepOrder> orders = orders_of_all(pyramid_shape(n), table);
      const int steps = std::max(6, orders.front().steps_per_body);
      const AsSoonAsPossible run(orders, steps);
      std::map<int, int> number;
      for (const auto& [what, times] : run.kept()) {
        for (int time = times.first; time < times.second; ++time) ++number[time];
      }
      std::set<int> numbers;
      for (int time = 4 * n; time < 2 * n * (steps - 2); ++time) numbers.insert(number[time]);
      EXPECT_EQ(numbers, std::set{n * (n + 1) / 2}) << n;
      EXPECT_EQ(run.end(), 2 * n * steps + 2 * (n - 1))
          << n << ": the last micro-batch begins 2(N - 1) after the first";
    }
  }
}

}  // namespace
}  // namespace strata::test_pyramid_order
