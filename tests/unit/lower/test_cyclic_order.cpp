/// @file
/// The order of cyclic data parallelism, counted by hand and by the paper's formulas.

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "ir/order/step_order.hpp"
#include "lower/order/cyclic.hpp"

namespace strata::test_cyclic_order {
namespace {

/// A segment and a parameter a stage.
StepShape shape_of(int num_micro_batches, int num_stages) {
  StepShape shape{.micro_batches = num_micro_batches};
  for (int j = 0; j < num_stages; ++j) {
    shape.segments.push_back({.stage = j, .first_operator = j, .num_operators = 1, .parameters = {j}});
  }
  return shape;
}

StepOrder on_one_rank(const StepShape& shape, const FreshTable& fresh) {
  return cyclic_order(shape, fresh, {0, shape.num_stages(), 0, shape.micro_batches});
}

std::vector<StepOrder> on_a_rank_a_stage(const StepShape& shape, const FreshTable& fresh) {
  std::vector<StepOrder> orders;
  for (int j = 0; j < shape.num_stages(); ++j) {
    orders.push_back(cyclic_order(shape, fresh, {j, j + 1, 0, shape.micro_batches}));
  }
  return orders;
}

/// A pass or an update of a steady state's repetitions.
struct Done {
  OrderItem item;
  int step = 0;
  int time = 0;  ///< time step; an update: the one behind which it is
};

/// Of whole models on one rank with as many stages as micro-batches: each of these does one thing a time step.
std::vector<Done> repeated(const StepOrder& order, int num_repetitions) {
  std::vector<Done> all;
  int num_passes = 0;
  for (int repetition = 0; repetition < num_repetitions; ++repetition) {
    for (const OrderItem& item : order.items) {
      const bool is_pass = item.pass != Pass::update;
      all.push_back(
          {item, repetition + item.step, (is_pass ? num_passes : num_passes - 1) / order.shape.micro_batches});
      num_passes += is_pass ? 1 : 0;
    }
  }
  return all;
}

/// The same of ranks that take a micro-batch each and begin their repetitions at one time: a pass a time step.
std::vector<Done> repeated_beside_each_other(const std::vector<StepOrder>& orders, int num_repetitions) {
  std::vector<Done> all;
  for (const StepOrder& order : orders) {
    StepOrder alone = order;
    alone.shape.micro_batches = 1;
    std::ranges::copy(repeated(alone, num_repetitions), std::back_inserter(all));
  }
  return all;
}

/// The numbers that occur of what lives during a time step, between two steady repetitions' ends.
class Living {
 public:
  /// @p what is there during time steps [first, last].
  void add(int first, int last) {
    for (int time = first; time <= last; ++time) ++number_[time];
  }
  std::set<int> numbers(int begin, int end) const {
    std::set<int> result;
    for (int time = begin; time < end; ++time) result.insert(number_.contains(time) ? number_.at(time) : 0);
    return result;
  }

 private:
  std::map<int, int> number_;  ///< by time step
};

constexpr int kRepetitions = 8;
/// Time steps of the repetitions in the middle.
std::set<int> in_the_middle(const Living& living, int n) { return living.numbers(2 * n * 3, 2 * n * 5); }

std::set<int> live_activations(const std::vector<Done>& steps, int n) {
  Living living;
  std::map<std::tuple<int, int, int>, int> made;  // stage, micro-batch, step -> time
  for (const Done& done : steps) {
    const std::tuple what(done.item.segment, done.item.micro_batch, done.step);
    if (done.item.pass == Pass::forward) made[what] = done.time;
    if (done.item.pass == Pass::backward && made.contains(what)) living.add(made.at(what), done.time);
  }
  return in_the_middle(living, n);
}
std::set<int> live_activations(const StepOrder& order) {
  return live_activations(repeated(order, kRepetitions), order.shape.micro_batches);
}

/// Versions of stages' parameters that have been made, until nobody reads them any more and there is a newer one.
int most_live_versions(const std::vector<Done>& steps, int n) {
  std::map<std::pair<int, int>, int> first, last;  // stage, version -> time
  for (const Done& done : steps) {
    if (done.item.pass == Pass::update) {
      const int stage = done.item.parameters.front();
      first[{stage, done.step + 1}] = done.time + 1;
      int& end = last[{stage, done.step}];  // it is read where it is updated
      end = std::max(end, done.time);
    } else {
      int& end = last[{done.item.segment, done.step - done.item.version}];
      end = std::max(end, done.time);
    }
  }
  Living living;
  for (const auto& [version, begin] : first) {
    if (last.contains(version)) living.add(begin, last.at(version));
  }
  const std::set<int> numbers = in_the_middle(living, n);
  return *numbers.rbegin();
}
int most_live_versions(const StepOrder& order) {
  return most_live_versions(repeated(order, kRepetitions), order.shape.micro_batches);
}

/// Rules that ask for nothing that is not there in time, as many as there are.
std::vector<FreshTable> tables_within(const FreshTable& most) {
  std::vector<FreshTable> all = {most};
  for (std::size_t i = 0; i < most.size(); ++i) {
    for (std::size_t j = 0; j < most[i].size(); ++j) {
      if (most[i][j] == '0') continue;
      const std::size_t so_far = all.size();
      for (std::size_t k = 0; k < so_far; ++k) {
        all.push_back(all[k]);
        all.back()[i][j] = '0';
      }
    }
  }
  return all;
}

TEST(CyclicOrder, RulesOfThePaper) {
  EXPECT_EQ(freshest(3, 3), (FreshTable{"001", "011", "111"}));
  EXPECT_EQ(never_fresh(2, 3), (FreshTable{"000", "000"}));
  EXPECT_EQ(freshest(1, 1), (FreshTable{"1"}));
  EXPECT_EQ(freshest(2, 4), (FreshTable{"0011", "1111"}));
  EXPECT_EQ(freshest(4, 2), (FreshTable{"00", "01", "01", "11"}));
}

TEST(CyclicOrder, ThreeMicroBatchesAsInFigureOne) {
  EXPECT_EQ(to_text(on_one_rank(shape_of(3, 3), freshest(3, 3))),
            "order micro_batches=3 sub_batches=1 steps_per_body=1\n"
            "segment 0 stage=0 operators=0..0 parameters=0\n"
            "segment 1 stage=1 operators=1..1 parameters=1\n"
            "segment 2 stage=2 operators=2..2 parameters=2\n"
            // time step 0
            "forward 0 micro_batch=0 version=1\n"
            "backward 1 micro_batch=1 step=-1\n"
            "forward 2 micro_batch=2 step=-1\n"
            // 1
            "forward 1 micro_batch=0 version=1\n"
            "backward 0 micro_batch=1 step=-1 version=1\n"
            "backward 2 micro_batch=2 step=-1\n"
            "update parameters=2 step=-1\n"
            // 2: the update of stage 2 is read at once
            "forward 2 micro_batch=0\n"
            "forward 0 micro_batch=1 version=1\n"
            "backward 1 micro_batch=2 step=-1\n"
            "update parameters=1 step=-1\n"
            // 3
            "backward 2 micro_batch=0\n"
            "forward 1 micro_batch=1\n"
            "backward 0 micro_batch=2 step=-1\n"
            "update parameters=0 step=-1\n"
            // 4
            "backward 1 micro_batch=0 version=1\n"
            "forward 2 micro_batch=1\n"
            "forward 0 micro_batch=2\n"
            // 5
            "backward 0 micro_batch=0 version=1\n"
            "backward 2 micro_batch=1\n"
            "forward 1 micro_batch=2\n");
}

TEST(CyclicOrder, EveryRuleWithinTimeIsSound) {
  for (int n = 1; n <= 3; ++n) {
    for (const FreshTable& table : tables_within(freshest(n, n))) {
      const StepShape shape = shape_of(n, n);
      EXPECT_NO_THROW(verify(std::vector{on_one_rank(shape, table)}));
      EXPECT_NO_THROW(verify(on_a_rank_a_stage(shape, table)));
    }
  }
  for (const int n : {1, 2, 3, 4, 8}) {
    for (const int k : {1, 2, 3, 4, 6, 8}) {
      for (const FreshTable& table : {never_fresh(n, k), freshest(n, k)}) {
        EXPECT_NO_THROW(verify(std::vector{on_one_rank(shape_of(n, k), table)})) << n << " " << k;
        EXPECT_NO_THROW(verify(on_a_rank_a_stage(shape_of(n, k), table))) << n << " " << k;
        EXPECT_NO_THROW(verify(std::vector{unrolled(on_one_rank(shape_of(n, k), table), 2)})) << n << " " << k;
      }
    }
  }
}

TEST(CyclicOrder, WhatIsNotThereInTimeIsNotRead) {
  const FreshTable beyond = {"11", "11"};
  EXPECT_THROW(on_one_rank(shape_of(2, 2), beyond), InternalError);
  EXPECT_THROW(on_one_rank(shape_of(2, 2), freshest(3, 3)), InternalError);
  EXPECT_THROW(on_one_rank(shape_of(2, 2), freshest(2, 3)), InternalError);
  // verify() finds by itself that such an order waits for what follows it.
  StepOrder order = on_one_rank(shape_of(2, 2), freshest(2, 2));
  for (OrderItem& item : order.items) item.version = 0;
  EXPECT_THROW(verify(std::vector{order}), InternalError);
}

TEST(CyclicOrder, AStepsItemsRunOverTwoRepetitions) {
  const auto text = [](const StepOrder& order, int step) {
    StepOrder one{.shape = order.shape};
    for (const int i : items_of_step(order, step)) {
      one.items.push_back(order.items[static_cast<std::size_t>(i)]);
      one.items.back().step = 0;
    }
    const std::string all = to_text(one);
    return all.substr(all.find("forward"));
  };
  const StepOrder order = on_one_rank(shape_of(2, 2), freshest(2, 2));
  const std::string expected =
      "forward 0 micro_batch=0 version=1\n"
      "forward 1 micro_batch=0\n"
      "backward 1 micro_batch=0\n"
      "forward 0 micro_batch=1\n"
      "backward 0 micro_batch=0 version=1\n"
      "forward 1 micro_batch=1\n"
      "backward 1 micro_batch=1\n"
      "update parameters=1\n"
      "backward 0 micro_batch=1\n"
      "update parameters=0\n";
  EXPECT_EQ(text(order, 0), expected);
  const StepOrder two = unrolled(order, 2);
  EXPECT_EQ(two.steps_per_body, 2);
  for (const int step : {0, 1}) EXPECT_EQ(text(two, step), expected);
}

// Sec. 3.2: memory of activations is constant in time and half of what N micro-batches at once need.
TEST(CyclicOrder, AtEveryTimeStepAsManyActivations) {
  for (const int n : {1, 2, 3, 4, 8}) {
    EXPECT_EQ(live_activations(on_one_rank(shape_of(n, n), freshest(n, n))), std::set{n * (n + 1) / 2}) << n;
  }
}

TEST(CyclicOrder, VersionsOfStagesThatMicroBatchesShare) {
  const std::map<int, std::pair<int, int>> expected = {{2, {4, 3}}, {3, {6, 5}}, {4, {8, 6}}, {8, {16, 13}}};
  for (const auto& [n, versions] : expected) {
    EXPECT_EQ(most_live_versions(on_one_rank(shape_of(n, n), never_fresh(n, n))), versions.first) << n;
    EXPECT_EQ(most_live_versions(on_one_rank(shape_of(n, n), freshest(n, n))), versions.second) << n;
  }
}

std::vector<StepOrder> walking_orders(int n, const FreshTable& fresh) {
  std::vector<StepOrder> orders;
  for (int rank = 0; rank < n; ++rank) orders.push_back(walking_order(shape_of(n, n), fresh, rank));
  return orders;
}

TEST(CyclicOrder, OwnersUpdateBeforeTheirForwardWhereItIsFresh) {
  const auto text = [](const FreshTable& fresh, int rank) {
    const std::string all = to_text(walking_order(shape_of(2, 2), fresh, rank));
    return all.substr(all.find('\n', all.find("segment 1")) + 1);
  };
  EXPECT_EQ(text(freshest(2, 2), 0),
            "forward 0 micro_batch=0 version=1\n"
            "update parameters=1 step=-1\n"
            "forward 1 micro_batch=0\n"
            "backward 1 micro_batch=0\n"
            "backward 0 micro_batch=0 version=1\n");
  EXPECT_EQ(text(freshest(2, 2), 1),
            "backward 1..0 micro_batch=1 step=-1\n"
            "update parameters=0 step=-1\n"
            "forward 0..1 micro_batch=1\n");
  EXPECT_EQ(text(never_fresh(2, 2), 0),
            "forward 0..1 micro_batch=0 version=1\n"
            "update parameters=1 step=-1\n"
            "backward 1..0 micro_batch=0 version=1\n");
  EXPECT_THROW(walking_order(shape_of(2, 2), {"11", "11"}, 0), InternalError);
}

TEST(CyclicOrder, OfOwnersEveryRuleWithinTimeIsSound) {
  for (int n = 2; n <= 3; ++n) {
    for (const FreshTable& table : tables_within(freshest(n, n))) EXPECT_NO_THROW(verify(walking_orders(n, table)));
  }
}

/// As on one rank: activations and versions are the rule's, whoever has them.
TEST(CyclicOrder, OwnersTogetherHaveAsMuchAsOneRank) {
  const std::map<int, std::pair<int, int>> expected = {{2, {4, 3}}, {3, {6, 5}}, {4, {8, 6}}, {8, {16, 13}}};
  for (const auto& [n, versions] : expected) {
    const auto steps = [n = n](const FreshTable& fresh) {
      return repeated_beside_each_other(walking_orders(n, fresh), kRepetitions);
    };
    EXPECT_EQ(live_activations(steps(freshest(n, n)), n), std::set{n * (n + 1) / 2}) << n;
    EXPECT_EQ(most_live_versions(steps(never_fresh(n, n)), n), versions.first) << n;
    EXPECT_EQ(most_live_versions(steps(freshest(n, n)), n), versions.second) << n;
  }
}

}  // namespace
}  // namespace strata::test_cyclic_order
