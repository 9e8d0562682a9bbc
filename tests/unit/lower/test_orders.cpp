/// @file
/// The orders that schedules generate: as their papers draw them, verified over all stages; and an order that no file
/// of strata knows, lowered as they are.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.hpp"
#include "support/made_up_order.hpp"
#include "unit/lower/planned.hpp"
#include "unit/lower/two_segment_stages.hpp"

namespace strata::test_orders {
namespace {

using testing::HasSubstr;

/// "F0 B0": passes of whole stages.
std::string text(const StepOrder& order) {
  std::string result;
  const int first = order.items.front().segment;
  for (const OrderItem& item : order.items) {
    const bool begins_forward = item.pass == Pass::forward && item.segment == first;
    const bool ends_backward = item.pass == Pass::backward && item.segment == first;
    if (!begins_forward && !ends_backward) continue;
    result += fmt::format("{}{}{}", result.empty() ? "" : " ", begins_forward ? 'F' : 'B', item.micro_batch);
  }
  return result;
}

TEST(Orders, AsThePapersDrawThem) {
  EXPECT_EQ(text(gpipe_order(stages_of_two_segments(4, 3), 2)), "F0 F1 F2 B2 B1 B0");
  // PipeDream-Flush, four stages.
  const auto one_f_one_b = [](int stages, int stage, int micro_batches) {
    return text(one_forward_one_backward_order(stages_of_two_segments(stages, micro_batches), stage));
  };
  EXPECT_EQ(one_f_one_b(4, 0, 5), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
  EXPECT_EQ(one_f_one_b(4, 1, 5), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(one_f_one_b(4, 3, 5), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(one_f_one_b(4, 0, 2), "F0 F1 B0 B1");  // fewer micro-batches than stages
  EXPECT_EQ(text(simultaneous_order(stages_of_two_segments(1, 2), 0)), "F0 B0 F1 B1");
}

TEST(Orders, SegmentsAreRecomputedJustBeforeTheirBackward) {
  EXPECT_EQ(to_text(gpipe_order(stages_of_two_segments(2, 2), 1)),
            "order micro_batches=2 sub_batches=1 steps_per_body=1\n"
            "segment 0 stage=0 operators=0..0 parameters=0\n"
            "segment 1 stage=0 operators=1..1 parameters=1 recomputed\n"
            "segment 2 stage=1 operators=2..2 parameters=2\n"
            "segment 3 stage=1 operators=3..3 parameters=3 recomputed\n"
            "forward 2..3 micro_batch=0\n"
            "forward 2..3 micro_batch=1\n"
            "recompute 3 micro_batch=1\n"
            "backward 3..2 micro_batch=1 barrier\n"
            "recompute 3 micro_batch=0\n"
            "backward 3..2 micro_batch=0 barrier\n"
            "update parameters=2..3\n");
}

/// Parameter 0 is that of the first and the last segment, as a tied head's: it waits for the gradients of both stages.
TEST(Orders, UpdatesInBackwardFollowTheNextBackward) {
  StepShape two = stages_of_two_segments(2, 2);
  two.updates_in_backward = true;
  two.segments.push_back({.stage = 1, .first_operator = 4, .num_operators = 1, .parameters = {0, 4}});
  const StepOrder first = one_forward_one_backward_order(two, 0), last = one_forward_one_backward_order(two, 1);
  EXPECT_NO_THROW(verify({{first, last}}));
  EXPECT_THAT(to_text(last), testing::EndsWith("backward 4 micro_batch=1\n"
                                               "recompute 3 micro_batch=1\n"
                                               "backward 3 micro_batch=1 barrier\n"
                                               "update parameters=4\n"
                                               "backward 2 micro_batch=1\n"
                                               "update parameters=0,2..3\n"));
  EXPECT_THAT(to_text(first), testing::EndsWith("backward 1..0 micro_batch=1 barrier\nupdate parameters=0..1\n"));
  StepShape one = stages_of_two_segments(1, 2);
  one.updates_in_backward = true;
  one.segments.push_back({.stage = 0, .first_operator = 2, .num_operators = 1, .parameters = {2, 3}});
  EXPECT_THAT(to_text(simultaneous_order(one, 0)), testing::EndsWith("backward 2 micro_batch=1\n"
                                                                     "recompute 1 micro_batch=1\n"
                                                                     "backward 1 micro_batch=1 barrier\n"
                                                                     "update parameters=2..3\n"
                                                                     "backward 0 micro_batch=1\n"
                                                                     "update parameters=0..1\n"));
  EXPECT_EQ(parse_step_order(to_text(first)), first);
}

std::vector<StepOrder> of_all_stages(const StageOrderGenerator& generator, const StepShape& shape) {
  std::vector<StepOrder> orders;
  for (int stage = 0; stage < shape.num_stages(); ++stage) orders.push_back(generator(shape, stage));
  return orders;
}

TEST(Orders, OfAllStagesVerifyAndKeepFewMicroBatches) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
      for (const ScheduleKind kind : schedule_kinds) {
        const StageOrderGenerator generator = order_generator(kind);
        if (!generator || (kind == ScheduleKind::simultaneous && stages > 1)) continue;
        if (kind == ScheduleKind::two_buffered_weights) continue;  // it has no end, see below
        StepShape updating = stages_of_two_segments(stages, micro_batches);
        updating.updates_in_backward = true;
        EXPECT_NO_THROW(verify(of_all_stages(generator, updating))) << to_string(kind);
        const std::vector<StepOrder> orders = of_all_stages(generator, stages_of_two_segments(stages, micro_batches));
        EXPECT_NO_THROW(verify(orders)) << to_string(kind);
        for (int stage = 0; stage < stages; ++stage) {
          int in_flight = 0, most = 0;
          for (const OrderItem& item : orders[static_cast<std::size_t>(stage)].items) {
            if (item.segment != 2 * stage) continue;
            in_flight += item.pass == Pass::forward ? 1 : item.pass == Pass::backward ? -1 : 0;
            most = std::max(most, in_flight);
          }
          EXPECT_EQ(most, kind == ScheduleKind::gpipe ? micro_batches : std::min(micro_batches, stages - stage));
        }
      }
    }
  }
}

/// A stage is S - s - 1 forwards ahead, from one training step into the next, and reads what is one update old.
TEST(Orders, WithoutAFlushBackwardsAreAsLateAsAStageIsFarFromTheLast) {
  // A late backward is written behind the forward of the step after its own: "B3'".
  const auto text_of = [](const StepOrder& order) {
    std::string result;
    for (const OrderItem& item : order.items) {
      if (item.pass == Pass::recompute || (item.pass != Pass::update && item.segment % 2 != 0)) continue;
      EXPECT_EQ(item.version, item.pass == Pass::update ? 0 : 1);
      if (&item - order.items.data() >= std::ssize(order.items) / 2) continue;  // the second step is as the first
      const char pass = item.pass == Pass::forward ? 'F' : item.pass == Pass::backward ? 'B' : 'U';
      result += fmt::format("{}{}{}{}", result.empty() ? "" : " ", pass,
                            pass == 'U' ? "" : std::to_string(item.micro_batch), item.step < 0 ? "'" : "");
    }
    return result;
  };
  EXPECT_EQ(text_of(two_buffered_weights_order(stages_of_two_segments(3, 4), 0)), "F0 B2' F1 B3' U' F2 B0 F3 B1");
  EXPECT_EQ(text_of(two_buffered_weights_order(stages_of_two_segments(3, 4), 1)), "F0 B3' U' F1 B0 F2 B1 F3 B2");
  EXPECT_EQ(text_of(two_buffered_weights_order(stages_of_two_segments(3, 4), 2)), "F0 B0 F1 B1 F2 B2 F3 B3 U");
  for (int stages = 1; stages <= 5; ++stages) {
    for (int micro_batches = stages; micro_batches <= stages + 3; ++micro_batches) {
      const std::vector<StepOrder> orders =
          of_all_stages(two_buffered_weights_order, stages_of_two_segments(stages, micro_batches));
      EXPECT_NO_THROW(verify(orders)) << stages << " stages, " << micro_batches << " micro-batches";
      EXPECT_EQ(orders.front().steps_per_body, 2);
    }
  }
}

TEST(Orders, SomeSchedulesCanOnlyBePlanned) {
  EXPECT_FALSE(order_generator(ScheduleKind::cyclic));
  EXPECT_FALSE(order_generator(ScheduleKind::interleaved));  // of a rank with several stages: test_interleaved.cpp
}

TEST(Orders, OfAPlanAreThoseOfItsModel) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 4});
  Plan base = asked(8, 4);
  base.schedule.micro_batches = 2;
  base.recompute = Recompute::block;
  const Plan plan = planned(find_planner("1f1b"), graph, base, {{"stages", std::int64_t{2}}});
  const std::vector<StepOrder> orders = step_orders(plan, graph);
  ASSERT_EQ(orders.size(), 2U);
  EXPECT_NO_THROW(verify(orders));
  const std::vector<Segment>& segments = orders[0].shape.segments;
  ASSERT_EQ(segments.size(), 6U) << "embedding, four blocks, head";
  EXPECT_EQ(segments.back().end(), std::ssize(graph.operators));
  for (std::size_t s = 0; s < segments.size(); ++s) {
    EXPECT_EQ(segments[s].recomputed, s > 0 && s < 5) << s;
    EXPECT_EQ(segments[s].stage, s < 3 ? 0 : 1) << s;
  }
}

// ---- an order of its own -------------------------------------------------------------------------------------------

Plan two_stages(const ModelGraph& graph, int micro_batches) {
  Plan base = asked(micro_batches, 2);
  base.schedule.micro_batches = micro_batches;
  base.optimizer.kind = "sgd";
  return planned(find_planner("gpipe"), graph, base, {{"stages", std::int64_t{2}}});
}

TEST(MadeUpOrder, IsVerifiedLoweredAndVerifiedAgain) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 24, 16, 24, 10}});
  for (const int micro_batches : {1, 2, 3, 4, 7}) {
    const Plan plan = two_stages(graph, micro_batches);
    const StepShape shape = step_orders(plan, graph).front().shape;
    EXPECT_NO_THROW(verify(of_all_stages(two_forwards_one_backward, shape)));
    std::vector<Program> programs;
    for (int rank = 0; rank < 2; ++rank) {
      programs.push_back(lower(plan, graph, rank, some_workspace, by_stage(two_forwards_one_backward)));
    }
    EXPECT_NO_THROW(verify(programs)) << micro_batches;
  }
}

TEST(MadeUpOrder, IsTheOneThatIsMeant) {
  EXPECT_EQ(text(two_forwards_one_backward(stages_of_two_segments(2, 7), 0)),
            "F0 F1 F2 B0 F3 F4 B1 F5 F6 B2 B3 B4 B5 B6");
  EXPECT_EQ(text(two_forwards_one_backward(stages_of_two_segments(2, 7), 1)),
            "F0 F1 B0 F2 F3 B1 F4 F5 B2 F6 B3 B4 B5 B6");
}

TEST(MadeUpOrder, WithoutWholePassesIsRefused) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 24, 16, 24, 10}});
  const auto refused = [&](const StageOrderGenerator& generator) {
    return refusal([&] { lower(two_stages(graph, 2), graph, 0, no_workspace, by_stage(generator)); });
  };
  EXPECT_THAT(refused([](const StepShape& shape, int stage) {
                StepOrder order = gpipe_order(shape, stage);
                std::swap(order.items[0], order.items[1]);
                return order;
              }),
              HasSubstr("plan `gpipe`: schedule.kind = gpipe: stage 0 of 2: an order of a step that is not made of "
                        "whole passes of a stage, with updates behind them, cannot be lowered"));
  EXPECT_THAT(refused([](const StepShape& shape, int stage) {
                StepOrder order = gpipe_order(shape, stage);
                order.items.back().step = -1;
                return order;
              }),
              HasSubstr("cannot be lowered"));
}

}  // namespace
}  // namespace strata::test_orders
