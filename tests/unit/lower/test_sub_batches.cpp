/// @file
/// Sub-batches that take turns: orders as the paper of Oases draws them, as many all-reduces a layer as it counts, and
/// samples that are cut once for all layers.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

#include "lower/order/sub_batches.hpp"
#include "partition/sample_parts.hpp"
#include "unit/lower/planned.hpp"
#include "unit/lower/tensor_parallel.hpp"

namespace strata::test_sub_batches {
namespace {

using testing::HasSubstr;

/// A layer of two products with their all-reduces, as figure 3 has it: of the forward each ends a segment, of the
/// backward each begins one. @param communicates_again recomputation sums again.
StepShape layer(int sub_batches, bool cross_pass, bool is_recomputed, bool communicates_again) {
  StepShape shape{.sub_batches = sub_batches, .cross_pass = cross_pass};
  for (int s = 0; s < 2; ++s) {
    // After communication each is a recomputation of its own; else both are, as a layer.
    const bool together = s == 1 && is_recomputed && (communicates_again || !cross_pass);
    shape.segments.push_back({.first_operator = s,
                              .num_operators = 1,
                              .recomputed = is_recomputed,
                              .recomputed_with_previous = together,
                              .communicates_forward = true,
                              .communicates_recompute = communicates_again,
                              .communicates_backward = true,
                              .parameters = {s}});
  }
  return shape;
}

/// "F1' R2'' |B2'": pass, number of the segment from 1 on, a quote a sub-batch, a bar for a barrier before it.
std::string text(const std::vector<OrderItem>& items) {
  std::string result;
  for (const OrderItem& item : items) {
    if (item.pass == Pass::update) continue;
    const char letter = item.pass == Pass::forward ? 'F' : item.pass == Pass::recompute ? 'R' : 'B';
    result += fmt::format("{}{}{}{}{}", result.empty() ? "" : " ", item.barrier ? "|" : "", letter, item.segment + 1,
                          std::string(static_cast<std::size_t>(item.sub_batch) + 1, '\''));
  }
  return result;
}

/// Figure 3: (a) one batch, (b) in turn within each pass, (c) across passes, (d) with nothing communicated again.
TEST(SubBatches, TakeTurnsAsThePaperDraws) {
  const SegmentRange all{0, 2};
  EXPECT_EQ(text(forward_of_sub_batches(layer(1, false, false, false), all, 0)), "F1' F2'");
  EXPECT_EQ(text(forward_of_sub_batches(layer(2, false, false, false), all, 0)), "F1' F1'' F2' F2''");
  EXPECT_EQ(text(forward_of_sub_batches(layer(3, false, false, false), all, 0)), "F1' F1'' F1''' F2' F2'' F2'''");
  EXPECT_EQ(text(backward_of_sub_batches(layer(2, false, false, false), all, 0)), "B2' B2'' B1' B1''");
  EXPECT_EQ(text(backward_of_sub_batches(layer(1, false, true, true), all, 0)), "R1' R2' |B2' B1'");
  EXPECT_EQ(text(backward_of_sub_batches(layer(2, false, true, true), all, 0)), "R1' R1'' R2' R2'' |B2' B2'' B1' B1''");
  EXPECT_EQ(text(backward_of_sub_batches(layer(2, true, true, true), all, 0)), "R1' R1'' R2' R2'' B2' B2'' B1' B1''");
  EXPECT_EQ(text(backward_of_sub_batches(layer(2, true, true, false), all, 0)), "R2' B2' R2'' B2'' R1' B1' R1'' B1''");
  EXPECT_EQ(text(backward_of_sub_batches(layer(2, false, true, false), all, 0)),
            "R1' R2' R1'' R2'' |B2' B2'' B1' B1''");
}

Plan going(std::vector<int> degrees, int sub_batches, bool cross_pass, Recompute recompute) {
  Plan plan = plan_of(degrees, recompute);
  plan.schedule.sub_batches = sub_batches;
  plan.schedule.cross_pass = cross_pass;
  return plan;
}

/// A recomputation waits for no gradient: it comes before the backward of the addition and the norm that stand between
/// it and the all-reduce before it. Of segments 6 to 10, the second layer, 7 and 9 end and begin with one.
TEST(SubBatches, RecomputationComesFirstBetweenTwoCollectives) {
  const std::vector<StepOrder> orders = step_orders(going({4, 4, 4}, 2, true, Recompute::after_communication), gpt());
  EXPECT_THAT(to_text(orders.front()), HasSubstr("recompute 8..9 micro_batch=0\n"
                                                 "backward 11..9 micro_batch=0\n"
                                                 "recompute 8..9 micro_batch=0 sub_batch=1\n"
                                                 "backward 11..9 micro_batch=0 sub_batch=1\n"
                                                 "recompute 6..7 micro_batch=0\n"
                                                 "backward 8..7 micro_batch=0\n"
                                                 "recompute 6..7 micro_batch=0 sub_batch=1\n"
                                                 "backward 8..7 micro_batch=0 sub_batch=1\n"));
}

TEST(SubBatches, OrdersOfEveryWayVerifyAndAreReadBack) {
  for (const int sub_batches : {1, 2, 3}) {
    for (const bool cross_pass : {false, true}) {
      for (const Recompute recompute :
           {Recompute::none, Recompute::block, Recompute::whole_block, Recompute::after_communication}) {
        if (cross_pass && (sub_batches == 1 || recompute == Recompute::none)) continue;
        for (const std::vector<int>& degrees : {std::vector{8, 8, 8}, {4, 8, 4}, {8, 4, 8}}) {
          const Plan plan = going(degrees, sub_batches, cross_pass, recompute);
          if (plan.global_batch < 8 / 4 * sub_batches) continue;
          const std::vector<StepOrder> orders = step_orders(plan, gpt());
          EXPECT_NO_THROW(verify(orders));
          EXPECT_EQ(parse_step_order(to_text(orders.front())), orders.front());
          EXPECT_NO_THROW(verify(all_ranks(plan, gpt(), no_workspace)));
        }
      }
    }
  }
}

/// All-reduces a layer (Oases, sec. 3 and its appendix): two a pass; of two sub-batches twice as many halves. Of a
/// block that runs again as a whole the last sum is nobody's input.
TEST(SubBatches, AllReducesALayerAreThoseOfThePaper) {
  struct Case {
    const char* name;
    int sub_batches;
    bool cross_pass;
    Recompute recompute;
    int in_all, recomputing;
  };
  for (const Case& c :
       {Case{"checkpointing", 1, false, Recompute::whole_block, 6, 2}, Case{"block", 1, false, Recompute::block, 5, 1},
        Case{"fine-grained alone", 1, false, Recompute::after_communication, 4, 0},
        Case{"merak", 2, false, Recompute::whole_block, 12, 4},
        Case{"merak without recomputation", 2, false, Recompute::none, 8, 0},
        Case{"across passes", 2, true, Recompute::whole_block, 12, 4},
        Case{"oases", 2, true, Recompute::after_communication, 8, 0}}) {
    const Plan plan = going({4, 4, 4}, c.sub_batches, c.cross_pass, c.recompute);
    int in_all = 0;
    for (const Phase phase : {Phase::forward, Phase::recompute, Phase::backward}) {
      in_all += collectives(plan, phase)[Collective::all_reduce];
    }
    EXPECT_EQ(in_all, c.in_all * num_layers) << c.name;
    const Counts again = c.recomputing == 0 ? Counts{} : Counts{{Collective::all_reduce, c.recomputing * num_layers}};
    EXPECT_EQ(collectives(plan, Phase::recompute), again) << c.name;
  }
}

/// Also where sums are scattered, norms exchange numbers, and samples are gathered between degrees.
TEST(SubBatches, NothingIsCommunicatedAgainAfterCommunication) {
  for (const PartialSums sum : {PartialSums::scatter, PartialSums::all_reduce}) {
    for (const std::vector<int>& degrees : {std::vector{8, 8, 8}, {2, 8, 4}, {8, 1, 2}}) {
      Plan plan = plan_of(degrees, Recompute::after_communication);
      plan.operators.front().sum = sum;
      EXPECT_EQ(collectives(plan, Phase::recompute), Counts{}) << fmt::format("{}", fmt::join(degrees, " "));
    }
  }
}

TEST(SubBatches, HaveNeighboursInTheGlobalBatchThatDifferByOneSampleARank) {
  Plan plan = asked(96, 4);
  plan.mesh.axes = {{"data", 4}};
  const auto sizes = [&](std::int64_t batch, int sub_batches) {
    plan.global_batch = batch;
    plan.schedule.sub_batches = sub_batches;
    std::vector<std::int64_t> result;
    std::int64_t end = 0;
    for (int u = 0; u < sub_batches; ++u) {
      const Chunk samples = samples_of_sub_batch(plan, {}, u);
      EXPECT_EQ(samples.begin, end);
      end = samples.end;
      result.push_back(samples.size());
    }
    EXPECT_EQ(end, batch);
    return result;
  };
  EXPECT_THAT(sizes(96, 1), testing::ElementsAre(96));
  EXPECT_THAT(sizes(96, 3), testing::ElementsAre(32, 32, 32));
  EXPECT_THAT(sizes(12, 2), testing::ElementsAre(8, 4));      // two and one of a rank's three
  EXPECT_THAT(sizes(28, 3), testing::ElementsAre(12, 8, 8));  // three, two and two of seven
  EXPECT_THAT(sizes(10, 2), testing::ElementsAre(8, 2));      // of three, where the last ranks have fewer
}

/// Of a product by columns: input gradient, its sum, weight gradient.
TEST(SubBatches, WeightGradientsRunUnderTheSumOfInputGradients) {
  Plan plan = plan_of({4, 4, 4});
  const auto backward_of_fc1 = [&] {
    std::vector<std::string> names;
    for (const Instruction& in : lower(plan, gpt(), 0, no_workspace).body) {
      if (in.phase != Phase::backward || !in.name.starts_with("block[0].mlp.fc1")) continue;
      names.emplace_back(in.is_collective() ? to_string(in.collective) : kernel_signature(in.kernel).name);
    }
    return names;
  };
  EXPECT_THAT(backward_of_fc1(), testing::ElementsAre("linear_backward_weight", "linear_backward_input", "all_reduce"));
  plan.overlap.layout = "weight_gradient";
  EXPECT_THAT(backward_of_fc1(), testing::ElementsAre("linear_backward_input", "all_reduce", "linear_backward_weight"));
  plan.operators.front().sum = PartialSums::scatter;
  EXPECT_THAT(refusal([&] { lower(plan, gpt(), 0, no_workspace); }),
              HasSubstr("sum = scatter with overlap.layout = weight_gradient, which is for sums that all ranks have,"));
}

/// Gradients wait for the sums of all sub-batches: one all-reduce a bucket, whatever there is of them.
TEST(SubBatches, GradientsAreSummedOnce) {
  const auto sums = [](int sub_batches) {
    std::multiset<std::string> names;
    const Plan plan = going({4, 4, 4}, sub_batches, false, Recompute::none);
    for (const Instruction& in : lower(plan, gpt(), 0, no_workspace).body) {
      if (in.is_collective() && in.phase == Phase::reduce) names.insert(in.name);
    }
    return names;
  };
  EXPECT_FALSE(sums(1).empty());
  EXPECT_EQ(sums(2), sums(1));
}

}  // namespace
}  // namespace strata::test_sub_batches
