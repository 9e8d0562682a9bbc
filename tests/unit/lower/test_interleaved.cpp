/// @file
/// Interleaved stages: orders as their paper draws them, passes in flight, messages around the ranks, memory and volume
/// as the mode's docstring says.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "lower/order/interleaved.hpp"
#include "partition/stages.hpp"
#include "partition/stages_of_places.hpp"
#include "unit/lower/activation_peak.hpp"
#include "unit/lower/planned.hpp"
#include "unit/lower/two_segment_stages.hpp"

namespace strata::test_interleaved {
namespace {

using testing::HasSubstr;

StepOrder order_of(const StepShape& shape, int ranks, int rank) {
  return interleaved_order(shape, {.first_stage = rank, .end_stage = shape.num_stages(), .stages_apart = ranks});
}

/// "F0.2 B0.2": passes of micro-batch 0 through stage 2.
std::string text(const StepOrder& order) {
  std::string result;
  for (const OrderItem& item : order.items) {
    const bool begins_forward = item.pass == Pass::forward && item.segment % 2 == 0;
    const bool ends_backward = item.pass == Pass::backward && item.segment % 2 == 0;
    if (!begins_forward && !ends_backward) continue;
    result += fmt::format("{}{}{}.{}", result.empty() ? "" : " ", begins_forward ? 'F' : 'B', item.micro_batch,
                          item.segment / 2);
  }
  return result;
}

TEST(Interleaved, IsAsItsPaperDrawsIt) {
  // Figure 4 of the paper for the first two of eight micro-batches' rounds, on two ranks of two stages.
  const StepShape shape = stages_of_two_segments(4, 4);
  EXPECT_EQ(text(order_of(shape, 2, 0)),
            "F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 B3.2 B2.0 B3.0");
  EXPECT_EQ(text(order_of(shape, 2, 1)),
            "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1");
}

TEST(Interleaved, OfAllRanksVerifyAndKeepFewPassesInFlight) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int v : {1, 2, 3}) {
      if (ranks == 1 && v > 1) continue;
      for (const int micro_batches : {ranks, 2 * ranks, 4 * ranks}) {
        StepShape shape = stages_of_two_segments(v * ranks, micro_batches);
        for (const bool updates_in_backward : {false, true}) {
          shape.updates_in_backward = updates_in_backward;
          std::vector<StepOrder> orders;
          for (int rank = 0; rank < ranks; ++rank) orders.push_back(order_of(shape, ranks, rank));
          EXPECT_NO_THROW(verify(orders)) << ranks << " ranks of " << v;
          for (int rank = 0; rank < ranks; ++rank) {
            int in_flight = 0, most = 0;
            for (const OrderItem& item : orders[static_cast<std::size_t>(rank)].items) {
              if (item.pass == Pass::update || item.segment % 2 != 0) continue;
              EXPECT_EQ(item.segment / 2 % ranks, rank);
              in_flight += item.pass == Pass::forward ? 1 : item.pass == Pass::backward ? -1 : 0;
              most = std::max(most, in_flight);
            }
            EXPECT_EQ(most, std::min(v * micro_batches, 2 * (ranks - rank - 1) + (v - 1) * ranks + 1));
          }
        }
      }
    }
  }
}

/// Twelve blocks: uneven in eight and nine stages.
std::vector<ModelGraph> models() {
  return {build_model({.name = "gpt-nano", .layers = 12, .dropout = 0.1, .tied_head = true}),
          build_model({.name = "llama-nano", .layers = 12})};
}

struct Shape {
  int ranks = 2;  ///< of a pipeline
  int chunks = 2;
  int data = 1;
  int micro_batches = 2;
};

/// Two samples a micro-batch and replica, whatever the shape.
Plan interleaved(const ModelGraph& graph, const Shape& shape, Plan base = {}) {
  base.mesh.ranks_per_node = shape.ranks * shape.data;
  base.global_batch = std::int64_t{2} * shape.data * shape.micro_batches;
  base.schedule.micro_batches = shape.micro_batches;
  base.overlap.bucket_bytes = 4096;
  return planned(find_planner("interleaved"), graph, base,
                 {{"stages", std::int64_t{shape.ranks * shape.chunks}}, {"chunks", std::int64_t{shape.chunks}}});
}

std::string text(const ModelGraph& graph, const Shape& shape) {
  return fmt::format("{}: {} ranks of {} stages, {} replicas, {} micro-batches", graph.name, shape.ranks, shape.chunks,
                     shape.data, shape.micro_batches);
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const int ranks : {2, 3, 4}) {
    for (const int chunks : {1, 2, 3}) {
      for (const int rounds : {1, 2}) all.push_back({ranks, chunks, 1, rounds * ranks});
    }
    all.push_back({ranks, 2, 2, 2 * ranks});
  }
  return all;
}

TEST(Interleaved, AllRanksMeetWithoutBuffering) {
  for (const ModelGraph& graph : models()) {
    for (const Shape& shape : shapes()) {
      for (const bool full : {false, true}) {  // recomputation, bf16, clipping, Adam
        Plan base;
        if (full) {
          base.recompute = Recompute::block;
          base.dtypes = {DType::bf16, DType::bf16};
          base.optimizer.clip_norm = 1.0;
        } else {
          base.optimizer.kind = "sgd";
        }
        const std::vector<Program> programs = all_ranks(interleaved(graph, shape, base), graph, some_workspace);
        EXPECT_NO_THROW(verify(programs)) << text(graph, shape);
        EXPECT_EQ(parse_program(to_text(programs.back())), programs.back()) << text(graph, shape);
      }
    }
  }
}

bool is_message(const Instruction& in, Collective kind) { return in.is_collective() && in.collective == kind; }

/// Tensor and micro-batch of each message on stream @p stream, in order.
std::vector<std::string> messages(const Program& program, const std::string& stream, Collective kind) {
  std::vector<std::string> list;
  for (const Instruction& in : program.body) {
    if (is_message(in, kind) && program.streams[static_cast<std::size_t>(in.stream)] == stream) {
      list.push_back(fmt::format("{} of {}", in.name, in.micro_batch));
    }
  }
  return list;
}

/// A micro-batch goes chunks times around: from each rank to the next as often as chunks, from the last to the first
/// once less; and back.
TEST(Interleaved, MessagesGoAroundTheRanks) {
  for (const ModelGraph& graph : models()) {
    for (const Shape& shape : shapes()) {
      if (shape.data > 1) continue;
      const std::vector<Program> programs = all_ranks(interleaved(graph, shape), graph, no_workspace);
      std::ptrdiff_t num_messages = 0;
      for (int from = 0; from < shape.ranks; ++from) {
        const int to = (from + 1) % shape.ranks;
        const int passes = (shape.chunks - (to == 0 ? 1 : 0)) * shape.micro_batches;
        if (passes == 0) continue;
        for (const auto& [sender, receiver] : {std::pair{from, to}, std::pair{to, from}}) {
          const std::string stream = fmt::format("{}{}to{}", to == 0 ? "around" : "stage", sender, receiver);
          const auto sent = messages(programs[static_cast<std::size_t>(sender)], stream, Collective::send);
          EXPECT_EQ(std::ssize(sent), passes) << stream << ", " << text(graph, shape);
          EXPECT_EQ(sent, messages(programs[static_cast<std::size_t>(receiver)], stream, Collective::recv)) << stream;
          num_messages += std::ssize(sent);
        }
      }
      // (vS - 1) / (S - 1) times those of a stage a rank.
      EXPECT_EQ(num_messages, 2 * (shape.chunks * shape.ranks - 1) * shape.micro_batches);
    }
  }
}

/// Each parameter is where its stage is; a tied table on both ends.
TEST(Interleaved, EveryRankHoldsEverySecondStage) {
  for (const ModelGraph& graph : models()) {
    const Shape shape{.ranks = 2, .chunks = 3};
    const Plan plan = interleaved(graph, shape);
    const std::vector<Program> programs = all_ranks(plan, graph, no_workspace);
    const StagePlaces pipeline(plan);
    const auto users = stages_of_parameters(graph, cut_into_stages(graph, plan.stages));
    for (std::size_t p = 0; p < users.size(); ++p) {
      std::set<int> holders;
      for (const Program& program : programs) {
        const auto is_it = [&](const Buffer& b) { return b.parameter == graph.parameters[p].name; };
        if (std::ranges::any_of(program.buffers, is_it)) holders.insert(program.rank);
      }
      std::set<int> expected;
      for (const int stage : users[p]) expected.insert(stage % 2);
      EXPECT_EQ(holders, expected) << graph.parameters[p].name;
      EXPECT_EQ(pipeline.places_of(users[p]), std::vector(expected.begin(), expected.end()));
    }
  }
}

/// The most passes of a stage of which some activation is alive at once, counted in tensors that each stage keeps:
/// equal layers keep equally much, so bytes rise by those of one pass with each pass in flight.
TEST(Interleaved, ActivationsGrowByThoseOfThePassesInFlight) {
  const ModelGraph graph = build_model({.name = "llama-nano", .layers = 12});
  const auto peak = [&](const Shape& shape, int rank) {
    return peak_activations(lower(interleaved(graph, shape), graph, rank, no_workspace));
  };
  for (const int ranks : {2, 3, 4}) {
    // More rounds of micro-batches need no more, once as many are in flight as ever are.
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(peak({.ranks = ranks, .chunks = 2, .micro_batches = 4 * ranks}, rank),
                peak({.ranks = ranks, .chunks = 2, .micro_batches = 8 * ranks}, rank))
          << ranks << ", rank " << rank;
    }
  }
  // Rank 1 of 4 is in the middle: 2(S-s-1) + (v-1)S + 1 = 9 passes of its two stages against 7 of rank 2, which hold
  // equal layers; each keeps what a middle stage of one rank a stage keeps of a micro-batch.
  const std::int64_t of_rank_1 = peak({.ranks = 4, .chunks = 3, .micro_batches = 16}, 1);
  const std::int64_t of_rank_2 = peak({.ranks = 4, .chunks = 3, .micro_batches = 16}, 2);
  const auto kept = [&](int micro_batches) {
    Plan base = asked(2 * micro_batches, 12);
    base.schedule.micro_batches = micro_batches;
    const Plan plan = planned(find_planner("gpipe"), graph, base, {{"stages", std::int64_t{12}}});
    return peak_activations(lower(plan, graph, 5, no_workspace));
  };
  EXPECT_EQ(of_rank_1 - of_rank_2, 2 * (kept(5) - kept(4)));
}

TEST(Interleaved, BytesAreWhatTheDocstringSays) {
  for (const ModelGraph& graph : models()) {
    for (const Shape& shape : {Shape{2, 2, 1, 4}, Shape{3, 2, 2, 3}, Shape{2, 3, 2, 2}}) {
      const std::vector<Program> programs = all_ranks(interleaved(graph, shape), graph, no_workspace);
      std::int64_t sent = 0, of_a_message = 0;
      for (const Program& program : programs) {
        sent += bytes_by_collective(program)[Collective::send];
        for (const Instruction& in : program.body) {
          if (is_message(in, Collective::send)) of_a_message = in.inputs.front().num_elements * size_of(DType::f32);
        }
      }
      EXPECT_EQ(sent, 2 * (shape.ranks * shape.chunks - 1) * shape.micro_batches * shape.data * of_a_message)
          << text(graph, shape);
    }
  }
}

TEST(Interleaved, RefusesWhatDoesNotGoRoundInRounds) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 8});
  const auto refusal_of = [&](int ranks, int micro_batches, std::map<std::string, OptionValue> options) {
    Plan base = asked(12, ranks);
    base.schedule.micro_batches = micro_batches;
    return refusal([&] { planned(find_planner("interleaved"), graph, base, std::move(options)); });
  };
  EXPECT_EQ(refusal_of(4, 6, {}),
            "interleaved: train.micro_batches = 6 is no multiple of the 4 ranks of a pipeline (of 4 ranks), which take "
            "as many at once; accepted: 4 or a multiple of it");
  EXPECT_EQ(refusal_of(4, 4, {{"chunks", std::int64_t{3}}, {"stages", std::int64_t{12}}}),
            "interleaved: 12 stages on 4 ranks, but gpt-nano has 8 blocks, and a stage has one or more");
  EXPECT_EQ(refusal_of(4, 4, {{"stages", std::int64_t{6}}}),
            "interleaved: 1 nodes × 4 ranks a node = 4 ranks are not divisible by 3 ranks of a pipeline");
  EXPECT_EQ(refusal_of(4, 4, {{"stages", std::int64_t{5}}}),
            "interleaved: 5 stages in chunks of 2 on 4 ranks; accepted: 4 or a greater multiple of 2");
  EXPECT_EQ(refusal_of(4, 4, {{"stages", std::int64_t{2}}}),
            "interleaved: 2 stages in chunks of 2 on 4 ranks; accepted: 4 or a greater multiple of 2");
  // The same of plans that were written by hand.
  Plan plan = interleaved(graph, {.ranks = 4, .micro_batches = 8});
  plan.schedule.micro_batches = 6;
  plan.global_batch = 12;
  EXPECT_THAT(
      lowering_refusal(plan, graph),
      HasSubstr("schedule.kind = interleaved with 6 micro-batches on 4 ranks a pipeline, which take 4 at once"));
  plan.mesh = {.ranks_per_node = 1};
  EXPECT_THAT(lowering_refusal(plan, graph), HasSubstr("8 stages on one rank, between which nothing is sent"));
}

}  // namespace
}  // namespace strata::test_interleaved
