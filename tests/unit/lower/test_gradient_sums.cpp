/// @file
/// Where gradients go and how they are summed, read off orders in which micro-batches take turns, segment by segment.

#include <gmock/gmock.h>

#include "lower/states/gradient_sums.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_gradient_sums {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = GradientAction::Kind;

/// Two segments of one operator, of four numbers each unless they share one; two micro-batches, two ranks.
struct Example {
  ModelGraph graph;
  Plan plan = asked(2, 2);
  StepOrder order;

  explicit Example(bool is_tied) {
    for (const char* name : {"first", "second"}) {
      graph.operators.push_back({.name = name, .parameters = {is_tied ? 0 : static_cast<int>(graph.operators.size())}});
    }
    for (const char* name : {"a", "b"}) graph.parameters.push_back({.name = name, .shape = {4}});
    if (is_tied) graph.parameters.pop_back();
    plan.overlap.all_reduce = plan.overlap.reduce_scatter = "backward";
    plan.schedule.micro_batches = order.shape.micro_batches = 2;
    for (int s = 0; s < 2; ++s) {
      order.shape.segments.push_back({.first_operator = s,
                                      .num_operators = 1,
                                      .parameters = graph.operators[static_cast<std::size_t>(s)].parameters});
    }
    order.items = {backward(1, 0), backward(1, 1), backward(0, 0), backward(0, 1), {.pass = Pass::update}};
  }
  static OrderItem backward(int segment, int micro_batch) {
    return {.pass = Pass::backward, .segment = segment, .micro_batch = micro_batch};
  }

  GradientSums sums(const StateFactors& factors) const {
    const FirstOfTwo rank(
        plan, graph, {.factors = factors, .held = {0, 4 / factors.p.total()}, .updated = {0, 4 / factors.os.total()}});
    const std::vector<GradientContribution> contributions = gradient_contributions(order, graph);
    const GradientBuckets buckets = gradient_buckets(plan, order, contributions, rank.shards, rank.groups, {});
    return gradient_sums(order, contributions, buckets, plan, graph, rank.shards, rank.groups, {}, nullptr);
  }
};

std::vector<Kind> kinds(const GradientSums& sums, const ActionRange& actions) {
  std::vector<Kind> result;
  for (int a = actions.begin; a < actions.end; ++a) result.push_back(sums.actions[static_cast<std::size_t>(a)].kind);
  return result;
}
std::vector<Kind> behind(const GradientSums& sums, int item, int op) {
  return kinds(sums, sums.backward.at(item, op).behind_contributions);
}
GradientSums::Destination destination(const GradientSums& sums, int item, int op) {
  return sums.backward.at(item, op).destinations.front();
}

TEST(GradientSums, ABucketLeavesWithTheLastItemThatAddsToIt) {
  Example example(false);
  example.plan.overlap.bucket_bytes = 1;
  const GradientSums sums = example.sums({});
  EXPECT_FALSE(destination(sums, 0, 1).accumulate);
  EXPECT_TRUE(destination(sums, 1, 1).accumulate);
  EXPECT_FALSE(destination(sums, 2, 0).accumulate);
  EXPECT_TRUE(destination(sums, 3, 0).accumulate);
  EXPECT_THAT(behind(sums, 0, 1), IsEmpty());
  EXPECT_THAT(behind(sums, 1, 1), ElementsAre(Kind::all_reduce)) << "before the other segment's backward";
  EXPECT_THAT(behind(sums, 2, 0), IsEmpty());
  EXPECT_THAT(behind(sums, 3, 0), ElementsAre(Kind::all_reduce));
  EXPECT_THAT(kinds(sums, sums.behind_backward), IsEmpty());
}

TEST(GradientSums, WhatSeveralItemsOfAMicroBatchAddToIsScatteredBehindTheLast) {
  const Factor both{2, 1};
  const GradientSums sums = Example(true).sums({.p = both, .g = both, .os = both});
  EXPECT_NE(destination(sums, 0, 1).place.buffer, destination(sums, 1, 1).place.buffer);
  for (const int micro_batch : {0, 1}) {
    const GradientSums::Destination early = destination(sums, micro_batch, 1);
    const GradientSums::Destination late = destination(sums, 2 + micro_batch, 0);
    EXPECT_FALSE(early.accumulate);
    EXPECT_TRUE(late.accumulate);
    EXPECT_EQ(early.place, late.place);
    EXPECT_THAT(behind(sums, micro_batch, 1), IsEmpty());
  }
  EXPECT_THAT(behind(sums, 2, 0), ElementsAre(Kind::reduce_scatter));
  EXPECT_THAT(behind(sums, 3, 0), ElementsAre(Kind::reduce_scatter, Kind::await, Kind::add));
}

TEST(GradientSums, MicroBatchesThatTakeTurnsFillBucketsOfTheirOwn) {
  const Factor both{2, 1};
  const GradientSums sums = Example(false).sums({.g = both, .os = both});
  const int first = destination(sums, 0, 1).place.buffer;
  const int second = destination(sums, 1, 1).place.buffer;
  EXPECT_NE(first, second);
  EXPECT_EQ(destination(sums, 2, 0).place.buffer, first);
  EXPECT_EQ(destination(sums, 3, 0).place.buffer, second);
  for (const int item : {0, 1}) EXPECT_THAT(behind(sums, item, 1), IsEmpty());
  for (const int item : {2, 3}) EXPECT_FALSE(destination(sums, item, 0).accumulate);
  EXPECT_THAT(behind(sums, 2, 0), ElementsAre(Kind::all_reduce));
  // Own parts of the first micro-batch arrive, are added to the second one's, and the sum is made of both.
  EXPECT_THAT(behind(sums, 3, 0),
              ElementsAre(Kind::await, Kind::copy, Kind::copy, Kind::add, Kind::add, Kind::all_reduce));
  EXPECT_THAT(kinds(sums, sums.behind_backward), ElementsAre(Kind::copy, Kind::copy));
}

}  // namespace
}  // namespace strata::test_gradient_sums
