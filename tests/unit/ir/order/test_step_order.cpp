/// @file
/// Orders of steps as values: their text, and what verify finds wrong with orders made by hand.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

#include "base/error.hpp"
#include "ir/order/step_order.hpp"
#include "support/refusal.hpp"

namespace strata::test_step_order {
namespace {

using testing::HasSubstr;

/// Two stages of two segments; the first and the last one share parameter 0.
StepShape shape(int micro_batches) {
  return {.micro_batches = micro_batches,
          .segments = {{.stage = 0, .first_operator = 0, .num_operators = 2, .parameters = {0}},
                       {.stage = 0, .first_operator = 2, .num_operators = 5, .recomputed = true, .parameters = {1, 2}},
                       {.stage = 1, .first_operator = 7, .num_operators = 5, .parameters = {3, 4, 6}},
                       {.stage = 1, .first_operator = 12, .num_operators = 1, .parameters = {0}}}};
}

OrderItem item(Pass pass, int segment, int micro_batch = 0) {
  return {.pass = pass, .segment = segment, .micro_batch = micro_batch};
}

/// One micro-batch through both stages.
std::vector<StepOrder> one_micro_batch() {
  StepOrder first{.shape = shape(1)}, second{.shape = shape(1)};
  first.items = {item(Pass::forward, 0),  item(Pass::forward, 1),  item(Pass::recompute, 1),
                 item(Pass::backward, 1), item(Pass::backward, 0), {.pass = Pass::update, .parameters = {0, 1, 2}}};
  second.items = {item(Pass::forward, 2),
                  item(Pass::forward, 3),
                  item(Pass::backward, 3),
                  item(Pass::backward, 2),
                  {.pass = Pass::update, .parameters = {0, 3, 4, 6}}};
  return {first, second};
}

TEST(StepOrder, TextIsReadBack) {
  StepOrder order = one_micro_batch().front();
  EXPECT_EQ(to_text(order),
            "order micro_batches=1 sub_batches=1 steps_per_body=1\n"
            "segment 0 stage=0 operators=0..1 parameters=0\n"
            "segment 1 stage=0 operators=2..6 parameters=1..2 recomputed\n"
            "segment 2 stage=1 operators=7..11 parameters=3..4,6\n"
            "segment 3 stage=1 operators=12..12 parameters=0\n"
            "forward 0..1 micro_batch=0\n"
            "recompute 1 micro_batch=0\n"
            "backward 1..0 micro_batch=0\n"
            "update parameters=0..2\n");
  EXPECT_EQ(parse_step_order(to_text(order)), order);
  order.shape.micro_batches = 3;
  order.shape.sub_batches = 2;
  order.steps_per_body = 2;
  order.items.push_back({Pass::forward, 1, 2, 1, -1, 3, {}});
  order.items.push_back({.pass = Pass::update, .step = 1, .parameters = {5, 2, 3}});
  EXPECT_EQ(parse_step_order(to_text(order)), order) << to_text(order);
  // An order without anything.
  EXPECT_EQ(parse_step_order(to_text(StepOrder{})), StepOrder{});
}

TEST(StepOrder, BadTextIsRefusedWithItsLine) {
  const std::string head = "order micro_batches=1 sub_batches=1 steps_per_body=1\n";
  const std::string segment = "segment 0 stage=0 operators=0..1 parameters=0\n";
  const auto said = [](const std::string& text) { return words_of<UserError>([&] { parse_step_order(text); }); };
  EXPECT_THAT(said(""), HasSubstr("begins with"));
  EXPECT_THAT(said("order micro_batches=0 sub_batches=1 steps_per_body=1\n"), HasSubstr("line 1: \"0\" is no number"));
  EXPECT_THAT(said("order sub_batches=1 steps_per_body=1\n"), HasSubstr("micro_batches is missing"));
  EXPECT_THAT(said(head + "segment 1 stage=0 operators=0..1 parameters=0\n"),
              HasSubstr("line 2: segments are numbered"));
  EXPECT_THAT(said(head + "segment 0 stage=0 operators=3..1 parameters=0\n"), HasSubstr("an operator or more"));
  EXPECT_THAT(said(head + segment + "foward 0 micro_batch=0\n"),
              HasSubstr("line 3: unknown word \"foward\"; accepted: "));
  EXPECT_THAT(said(head + segment + "forward 1 micro_batch=0\n"), HasSubstr("no such segment"));
  EXPECT_THAT(said(head + segment + "forward 0 micro_batch=0 lag=1\n"), HasSubstr("unknown word \"lag\""));
  EXPECT_THAT(said(head + segment + "forward 0 micro_batch=0 micro_batch=0\n"), HasSubstr("stands twice"));
  EXPECT_THAT(said(head + segment + "update parameters=2..1\n"), HasSubstr("does not rise"));
  EXPECT_THAT(said(head + segment + "update parameters=\n"), testing::IsEmpty()) << "verify finds it";
}

TEST(StepOrder, OrdersByHandVerify) {
  EXPECT_NO_THROW(verify(one_micro_batch()));
  // The ranks may be given in any order, and one rank may hold all of the model.
  std::vector<StepOrder> orders = one_micro_batch();
  std::swap(orders[0], orders[1]);
  EXPECT_NO_THROW(verify(orders));
  StepOrder alone{.shape = shape(1)};
  alone.items = {item(Pass::forward, 0),
                 item(Pass::forward, 1),
                 item(Pass::forward, 2),
                 item(Pass::forward, 3),
                 item(Pass::backward, 3),
                 item(Pass::backward, 2),
                 item(Pass::recompute, 1),
                 item(Pass::backward, 1),
                 {.pass = Pass::update, .parameters = {1, 2, 3}},
                 item(Pass::backward, 0),
                 {.pass = Pass::update, .parameters = {0, 4, 6}}};
  EXPECT_NO_THROW(verify({{alone}}));
}

/// Delayed by a step: the update of the step before stands between, and two versions are kept.
TEST(StepOrder, StepsMayOverlapWithVersions) {
  const StepShape one{.segments = {{.num_operators = 1, .parameters = {0}}}};
  StepOrder order{.shape = one};
  order.items = {{.pass = Pass::forward, .segment = 0, .version = 1},
                 {.pass = Pass::update, .step = -1, .parameters = {0}},
                 {.pass = Pass::backward, .segment = 0, .version = 1}};
  EXPECT_NO_THROW(verify({{order}}));
  // Of the version itself the forward reads, before the update that makes it.
  order.items[0].version = order.items[2].version = 0;
  EXPECT_THAT(words_of<InternalError>([&] { verify({{order}}); }), HasSubstr("waits for the update of parameter 0"));
  // A late update overwrites what a backward still reads.
  order.items = {{.pass = Pass::forward, .segment = 0},
                 {.pass = Pass::backward, .segment = 0},
                 {.pass = Pass::update, .parameters = {0}}};
  EXPECT_NO_THROW(verify({{order}}));
  order.items = {{.pass = Pass::forward, .segment = 0, .version = 1},
                 {.pass = Pass::backward, .segment = 0, .version = 1},
                 {.pass = Pass::update, .parameters = {0}}};
  EXPECT_NO_THROW(verify({{order}}));
  // Backward a repetition later, of two training steps in turn.
  order.items = {{.pass = Pass::backward, .segment = 0, .step = -1, .version = 1},
                 {.pass = Pass::update, .step = -1, .parameters = {0}},
                 {.pass = Pass::forward, .segment = 0, .version = 1}};
  EXPECT_NO_THROW(verify({{order}})) << "θ(t-1) is there before the update of t-1";
}

struct Mistake {
  const char* name;
  std::function<void(std::vector<StepOrder>&)> make;
  const char* what;
};

class StepOrderMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(StepOrderMistakes, AreFound) {
  std::vector<StepOrder> orders = one_micro_batch();
  GetParam().make(orders);
  EXPECT_THAT(words_of<InternalError>([&] { verify(orders); }), HasSubstr(GetParam().what));
}

using Orders = std::vector<StepOrder>;
const std::vector<Mistake> mistakes = {
    {"a_backward_too_few", [](Orders& o) { o[1].items.erase(o[1].items.begin() + 3); },
     "missing in the order of every rank: backward of segment 2, micro-batch 0"},
    {"a_forward_twice", [](Orders& o) { o[1].items.push_back(item(Pass::forward, 0)); },
     "order of rank 1, item 5, forward of segment 0, micro-batch 0: it is done a second time in the step, as on rank "
     "0"},
    {"no_recompute", [](Orders& o) { o[0].items.erase(o[0].items.begin() + 2); },
     "missing in the order of every rank: rec"},
    {"a_recompute_of_what_is_kept",
     [](Orders& o) { o[1].items.insert(o[1].items.begin() + 2, item(Pass::recompute, 2)); },
     "the segment is not recomputed"},
    {"backward_elsewhere",
     [](Orders& o) {
       o[0].items.insert(o[0].items.begin() + 2, item(Pass::backward, 2));
       o[1].items.erase(o[1].items.begin() + 3);
     },
     "its forward is on rank 1"},
    {"backward_before_recompute", [](Orders& o) { std::swap(o[0].items[2], o[0].items[3]); },
     "rank 0, item 2, backward of segment 1, micro-batch 0, step 0: waits for recompute of segment 1, micro-batch 0"},
    {"an_update_too_early", [](Orders& o) { std::swap(o[0].items[4], o[0].items[5]); },
     "more gradients of parameter 0"},
    {"a_parameter_never_updated",
     [](Orders& o) {
       o[0].items.back().parameters = {0, 1};
     },
     "order of rank 0: parameter 2 is read and never updated"},
    {"a_parameter_of_others",
     [](Orders& o) {
       o[0].items.back().parameters = {0, 1, 2, 3};
     },
     "order of rank 0: parameter 3 is updated and never read"},
    {"a_parameter_twice",
     [](Orders& o) {
       o[0].items.back().parameters = {0, 1, 2, 2};
     },
     "updated a second time"},
    {"an_update_of_nothing", [](Orders& o) { o[0].items.back().parameters.clear(); }, "it names no parameter"},
    {"another_version_in_backward", [](Orders& o) { o[0].items[3].version = 1; }, "its forward reads another version"},
    {"a_micro_batch_too_many", [](Orders& o) { o[0].items[0].micro_batch = 1; }, "no such micro-batch"},
    {"a_segment_too_many", [](Orders& o) { o[0].items[0].segment = 4; }, "no such segment"},
    {"a_sub_batch_too_many", [](Orders& o) { o[0].items[0].sub_batch = 1; }, "no such sub-batch"},
    {"a_hole_between_segments",
     [](Orders& o) {
       for (StepOrder& order : o) order.shape.segments[1].first_operator = 3;
     },
     "segment 1 does not go on where the one before it ends"},
    {"parameters_twice",
     [](Orders& o) {
       for (StepOrder& order : o) order.shape.segments[1].parameters = {1, 1};
     },
     "parameters of segment 1 do not rise"},
    {"another_shape", [](Orders& o) { o[1].shape.segments[0].recomputed = true; }, "has another shape"},
    {"ranks_that_wait_for_each_other",
     [](Orders& o) {  // two micro-batches, whose second stage takes its second one back before the first one forth
       for (StepOrder& order : o) order.shape.micro_batches = 2;
       o[0].items = {item(Pass::forward, 0, 0),
                     item(Pass::forward, 1, 0),
                     item(Pass::recompute, 1, 0),
                     item(Pass::backward, 1, 0),
                     item(Pass::backward, 0, 0),
                     item(Pass::forward, 0, 1),
                     item(Pass::forward, 1, 1),
                     item(Pass::recompute, 1, 1),
                     item(Pass::backward, 1, 1),
                     item(Pass::backward, 0, 1),
                     {.pass = Pass::update, .parameters = {0, 1, 2}}};
       o[1].items = {
           item(Pass::forward, 2, 0),  item(Pass::forward, 3, 0),  item(Pass::forward, 2, 1),
           item(Pass::forward, 3, 1),  item(Pass::backward, 3, 0), item(Pass::backward, 2, 0),
           item(Pass::backward, 3, 1), item(Pass::backward, 2, 1), {.pass = Pass::update, .parameters = {0, 3, 4, 6}}};
     },
     "nothing can go on:\n"
     "  rank 0, item 3, backward of segment 1, micro-batch 0, step 0: waits for backward of segment 2, micro-batch 0\n"
     "  rank 1, item 2, forward of segment 2, micro-batch 1, step 0: waits for forward of segment 1, micro-batch 1"}};

INSTANTIATE_TEST_SUITE_P(All, StepOrderMistakes, testing::ValuesIn(mistakes),
                         [](const auto& mistake) { return std::string(mistake.param.name); });

}  // namespace
}  // namespace strata::test_step_order
