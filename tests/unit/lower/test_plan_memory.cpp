/// @file
/// What few blocks tell of many: never more than the whole Programs need, and nearly as much.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "lower/plan_memory.hpp"
#include "partition/repeated_blocks.hpp"
#include "planned.hpp"
#include "planners/states/factors.hpp"

namespace strata::test_plan_memory {
namespace {

TEST(RepeatedBlocks, AModelOfFewerBlocksIsTheOneThatIsBuiltSo) {
  for (const char* name : {"gpt-nano", "llama-nano"}) {
    ModelOptions options{.name = name};
    options.layers = 5;
    const ModelGraph five = build_model(options);
    options.layers = 2;
    const ModelGraph two = build_model(options);
    const std::vector<BlockRun> runs = runs_of_equal_blocks(five, [](int, int) { return true; });
    ASSERT_EQ(runs, (std::vector<BlockRun>{{0, 5}}));
    const ModelGraph fewer = with_fewer_blocks(five, runs, std::vector<int>{2});
    EXPECT_NO_THROW(verify(fewer));
    EXPECT_EQ(fewer.blocks, two.blocks);
    EXPECT_EQ(fewer.operators, two.operators);
    EXPECT_EQ(fewer.tensors, two.tensors);
    ASSERT_EQ(fewer.parameters.size(), two.parameters.size());
    for (std::size_t p = 0; p < two.parameters.size(); ++p) {
      EXPECT_EQ(fewer.parameters[p].name, two.parameters[p].name);
    }
  }
}

TEST(RepeatedBlocks, WhatIsHeldDifferentlyIsAnotherRun) {
  ModelOptions options{.name = "gpt-nano"};
  options.layers = 6;
  const ModelGraph graph = build_model(options);
  const int fourth = graph.blocks[3].first_operator;
  const auto are_alike = [&](int a, int b) { return (a < fourth) == (b < fourth); };
  EXPECT_EQ(runs_of_equal_blocks(graph, are_alike), (std::vector<BlockRun>{{0, 3}, {3, 3}}));
}

struct Case {
  const char* model;
  double at_least;  ///< of the whole; a nano model's layers are small beside a bucket
};

TEST(PlanMemory, OfFewBlocksIsNearlyAllAndNeverMore) {
  for (const Case& c : {Case{"gpt-nano", 0.75}, {"llama-7b", 0.9}}) {
    const bool is_nano = std::string_view(c.model) == "gpt-nano";
    ModelOptions options{.name = c.model};
    if (is_nano) options.layers = 6;
    const ModelGraph graph = build_model(options);
    for (const int micro_batches : {1, 4}) {
      for (const char* update : {"none", "backward"}) {
        for (const StateFactors& state : legal_states({4, 2})) {
          if (!is_nano && state.g != state.os) continue;
          Plan plan = sharded_on_two_nodes(micro_batches, state);
          if (is_nano) plan.overlap.bucket_bytes = 4096;
          plan.overlap.update = update;
          plan.overlap.gather = "next_layer";
          plan.overlap.gather_backward = "next_module";
          plan.optimizer.sharding = "intra_tensor";
          plan.optimizer.spread = "all_gather";
          const auto whole = static_cast<double>(plan_memory(plan, graph, no_workspace).peak_bytes);
          const auto least = static_cast<double>(least_memory_bytes(plan, graph, no_workspace));
          EXPECT_LE(least, whole) << fmt::format("{}, {}, {}, {}", c.model, to_string(state), micro_batches, update);
          EXPECT_GE(least, c.at_least * whole)
              << fmt::format("{}, {}, {}, {}", c.model, to_string(state), micro_batches, update);
        }
      }
    }
  }
}

TEST(PlanMemory, EveryBlockThatIsLeftOutAddsWhatAThirdOneDoes) {
  const auto least = [](int layers) {
    ModelOptions options{.name = "gpt-nano"};
    options.layers = layers;
    const ModelGraph graph = build_model(options);
    return least_memory_bytes(planned(find_planner("ddp"), graph, asked(4, 4)), graph, no_workspace);
  };
  const std::int64_t of_a_block = least(3) - least(2);
  EXPECT_GT(of_a_block, 0);
  EXPECT_EQ(least(4) - least(3), of_a_block);
  EXPECT_EQ(least(6) - least(4), 2 * of_a_block);
}

/// The rank that owns most has its optimizer states, whoever they are dealt to.
TEST(PlanMemory, OfFewBlocksKnowsWhoOwnsMost) {
  const ModelGraph graph = build_model({.name = "llama-7b"});
  for (const StateFactors& state : legal_states({8, 4})) {
    if (state.os.total() == state.p.total() || state.g != state.os) continue;
    Plan base = asked(32, 8);
    base.mesh.nodes = 4;
    base.dtypes = {DType::bf16, DType::bf16};
    const Plan plan = planned(find_planner("amsp"), graph, base,
                              {{"p", to_string(state.p)}, {"g", to_string(state.g)}, {"os", to_string(state.os)}});
    const auto whole = static_cast<double>(plan_memory(plan, graph, no_workspace).peak_bytes);
    const auto least = static_cast<double>(least_memory_bytes(plan, graph, no_workspace));
    EXPECT_LE(least, 1.001 * whole) << to_string(state);
    EXPECT_GE(least, 0.93 * whole) << to_string(state);
  }
}

/// The gradients that need not wait for the last of backward.
TEST(PlanMemory, UpdatesInBackwardNeedLess) {
  const ModelGraph graph = build_model({.name = "llama-7b"});
  Plan plan = planned(find_planner("ddp"), graph, asked(8, 1));
  plan.recompute = Recompute::block;  // so that gradients are more than activations
  const std::int64_t behind = plan_memory(plan, graph, no_workspace).peak_bytes;
  const std::int64_t least_behind = least_memory_bytes(plan, graph, no_workspace);
  plan.overlap.update = "backward";
  EXPECT_LT(plan_memory(plan, graph, no_workspace).peak_bytes, behind);
  EXPECT_LT(least_memory_bytes(plan, graph, no_workspace), least_behind);
}

/// Of many micro-batches few are lowered, which fill every place: never more than all of them need, and nearly as much.
TEST(PlanMemory, OfAFullPipelineIsThatOfAllItsMicroBatches) {
  const ModelGraph graph =
      build_model({.name = "gpt", .layers = 8, .hidden = 32, .heads = 4, .vocabulary = 64, .sequence_length = 8});
  int compared = 0, num_alive_less = 0;
  for (const auto& [mode, places, chunks] :
       {std::tuple("1f1b", 2, 1), {"1f1b", 4, 1}, {"interleaved", 2, 2}, {"interleaved", 4, 2}}) {
    for (const int rounds : {2, 3, 5, 8}) {
      std::map<std::string, OptionValue> options = {{"stages", std::int64_t{places * chunks}}};
      if (chunks > 1) options.emplace("chunks", std::int64_t{chunks});
      Plan base = asked(std::int64_t{4} * rounds * places, 2 * places);
      base.schedule.micro_batches = rounds * places;
      base.overlap.bucket_bytes = 4096;
      Plan plan = planned(find_planner(mode), graph, base, options);
      const Factor two{2, 1};
      for (const StateFactors& state : {StateFactors{}, StateFactors{.p = two, .g = two, .os = two}}) {
        for (const Recompute recompute : {Recompute::none, Recompute::block}) {
          plan.operators = {{.match = "*", .state = state}};
          plan.recompute = recompute;
          const std::vector<std::int64_t> whole = plan_memory(plan, graph, some_workspace).stage_peak_bytes,
                                          least = least_memory_by_place(plan, graph, some_workspace),
                                          alive = live_memory_by_place(plan, graph, some_workspace);
          ASSERT_EQ(least.size(), whole.size());
          const int last = places - 1;  // Asked about alone, it needs as much.
          std::vector<std::int64_t> of_last(whole.size());
          of_last.back() = whole.back();
          EXPECT_EQ(plan_memory(plan, graph, some_workspace, std::span(&last, 1)).stage_peak_bytes, of_last);
          of_last.back() = least.back();
          EXPECT_EQ(least_memory_by_place(plan, graph, some_workspace, std::span(&last, 1)), of_last);
          for (std::size_t place = 0; place < whole.size(); ++place) {
            const std::string where =
                fmt::format("{}, place {} of {}, {} micro-batches", mode, place, places, plan.schedule.micro_batches);
            EXPECT_LE(least[place], whole[place]) << where;
            EXPECT_LE(alive[place], least[place]) << where;
            num_alive_less += alive[place] < least[place] ? 1 : 0;
            EXPECT_GE(static_cast<double>(least[place]), 0.85 * static_cast<double>(whole[place])) << where;
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 4 * 4 * (2 + 4 + 2 + 4));
  EXPECT_GT(num_alive_less, 0) << "first fit packs everything";
}

/// With the words of lowering, before ranks are told apart by orders that there are not.
TEST(PlanMemory, WhatCannotBeLoweredIsRefused) {
  const ModelGraph graph =
      build_model({.name = "gpt", .layers = 8, .hidden = 32, .heads = 4, .vocabulary = 64, .sequence_length = 8});
  Plan base = asked(16, 4);
  base.schedule.micro_batches = 4;
  Plan plan =
      planned(find_planner("interleaved"), graph, base, {{"stages", std::int64_t{4}}, {"chunks", std::int64_t{2}}});
  plan.global_batch = 12;
  plan.schedule.micro_batches = 3;
  const auto refuses = ::testing::HasSubstr("3 micro-batches on 2 ranks a pipeline");
  EXPECT_THAT(refusal([&] { plan_memory(plan, graph, some_workspace); }), refuses);
  EXPECT_THAT(refusal([&] { least_memory_by_place(plan, graph, some_workspace); }), refuses);
  EXPECT_THAT(refusal([&] { live_memory_by_place(plan, graph, some_workspace); }), refuses);
}

/// All micro-batches of gpipe are in flight, and each of them keeps as much: what few tell is all that is alive.
TEST(PlanMemory, OfGpipeIsWhatIsAliveOfAllItsMicroBatches) {
  const ModelGraph graph =
      build_model({.name = "gpt", .layers = 8, .hidden = 32, .heads = 4, .vocabulary = 64, .sequence_length = 8});
  for (const int places : {2, 4}) {
    for (const int micro_batches : {5, 8, 32}) {
      Plan base = asked(std::int64_t{2} * micro_batches, 2 * places);
      base.schedule.micro_batches = micro_batches;
      Plan plan = planned(find_planner("gpipe"), graph, base, {{"stages", std::int64_t{places}}});
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        plan.recompute = recompute;
        const std::vector<std::int64_t> least = least_memory_by_place(plan, graph, some_workspace),
                                        whole = plan_memory(plan, graph, some_workspace).stage_peak_bytes;
        ASSERT_EQ(least.size(), static_cast<std::size_t>(places));
        for (int place = 0; place < places; ++place) {
          const std::string where = fmt::format("place {} of {}, {} micro-batches", place, places, micro_batches);
          const auto p = static_cast<std::size_t>(place);
          EXPECT_EQ(least[p], memory_peak(lower(plan, graph, 2 * place, some_workspace)).total_bytes) << where;
          EXPECT_LE(least[p], whole[p]) << where;
        }
      }
    }
  }
}

/// What lives at a time follows from the order of instructions alone, also where steps overlap.
TEST(PlanMemory, WhatLivesAtATimeIsToldWithoutWaits) {
  ModelOptions options{.name = "gpt-nano"};
  options.layers = 8;
  options.tied_head = false;
  const ModelGraph graph = build_model(options);
  KernelTraits alive = some_workspace;
  alive.assigns_addresses = false;
  alive.finds_waits = false;
  int num_overlapping = 0;
  for (const auto& [mode, micro_batches, broadcast] : {std::tuple("ddp", 1, "none"),
                                                       {"zero1", 2, "next_forward"},
                                                       {"zero2", 1, "next_forward"},
                                                       {"zero3", 2, "none"},
                                                       {"1f1b", 8, "none"},
                                                       {"interleaved", 8, "none"},
                                                       {"2bw", 8, "none"},
                                                       {"cdp-v1", 4, "none"},
                                                       {"cdp-v2", 4, "none"}}) {
    Plan base = asked(32, 4);
    base.schedule.micro_batches = micro_batches;
    Plan plan = planned(find_planner(mode), graph, base);
    plan.overlap.broadcast = broadcast;
    for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
      const Program program = lower(plan, graph, rank, some_workspace);
      EXPECT_EQ(memory_peak(lower(plan, graph, rank, alive)).total_bytes, memory_peak(program).total_bytes)
          << fmt::format("{}, {} micro-batches, rank {}", mode, micro_batches, rank);
      if (!program.join) ++num_overlapping;
    }
  }
  EXPECT_EQ(num_overlapping, 5 * 4) << "steps of all five that let them overlap, on four ranks";
}

}  // namespace
}  // namespace strata::test_plan_memory
