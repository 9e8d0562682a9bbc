/// @file
/// Programs for kernels that compute neighbouring instructions at once: which become one, what is left of the bytes
/// that they move, and that every mode's Programs stay such as verify() asks for. What they train,
/// tests/mpi/exec/test_executor says.

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cost/kernel_work.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_fusion {
namespace {

constexpr Fusions all_fusions = {.convolution_relu = true,
                                 .max_pool_relu = true,
                                 .bias_gradient_first = true,
                                 .linear_gelu = true,
                                 .add_norm = true,
                                 .logit_rows_in_vectors = true};

Plan of_one_rank(const ModelGraph& graph, int micro_batches = 1) {
  Plan base = asked(4 * micro_batches, 1);
  base.schedule.micro_batches = micro_batches;
  return planned(find_planner("single"), graph, base);
}

std::map<std::string, int> count_kernels(const Program& program) {
  std::map<std::string, int> counts;
  for (const Instruction& in : program.body) ++counts[std::string(kernel_signature(in.kernel).name)];
  return counts;
}

std::int64_t bytes(const Program& program) {
  std::int64_t sum = 0;
  for (const Instruction& in : program.body) sum += bytes_touched(program, in);
  return sum;
}

TEST(Fusion, AnExecutorThatFusesNothingHasTheProgramItHad) {
  const ModelGraph graph = build_model({.name = "vgg-nano"});
  const Plan plan = of_one_rank(graph);
  EXPECT_EQ(lower(plan, graph, 0, {no_workspace, Fusions{}}), lower(plan, graph, 0, no_workspace));
}

TEST(Fusion, ReluAndBiasOfConvolutionsTakeNoPassOfTheirOwn) {
  const ModelGraph graph = build_model({.name = "vgg-nano", .dropout = 0.25});
  const Plan plan = of_one_rank(graph);
  const Program plain = lower(plan, graph, 0, no_workspace);
  const Program fused = lower(plan, graph, 0, {no_workspace, all_fusions});
  std::map<std::string, int> before = count_kernels(plain);
  std::map<std::string, int> after = count_kernels(fused);
  const int convolutions = before["convolution_forward"];
  const int pools = before["max_pool_forward"];
  ASSERT_EQ(pools, 5);
  // Those behind convolutions are theirs, those behind dense layers stay; the ReLU before a pool goes back with it.
  EXPECT_EQ(after["relu_forward"], before["relu_forward"] - convolutions);
  EXPECT_EQ(after["relu_backward"], before["relu_backward"] - pools);
  EXPECT_EQ(fused.body.size(), plain.body.size() - static_cast<std::size_t>(convolutions + pools));
  for (const Instruction& in : fused.body) {
    const std::int64_t has_relu = in.attributes.integer_or("relu", 0);
    switch (in.kernel) {
      case Kernel::convolution_forward:
      case Kernel::max_pool_forward: EXPECT_EQ(has_relu, 1) << in.name; break;
      case Kernel::convolution_backward_weight: EXPECT_EQ(in.outputs.size(), 1U) << in.name; break;
      case Kernel::max_pool_backward: EXPECT_EQ(in.outputs.size(), 2U) << in.name; break;
      default: break;
    }
  }
  EXPECT_EQ(flops_per_step(fused), flops_per_step(plain));
  // By pool and whole activation before it: what the ReLU wrote over it, dx of the pool once more and what the ReLU's
  // gradient wrote; two reads of the ReLU's gradient. Between convolutions the ReLU's forward alone.
  EXPECT_LT(bytes(fused), bytes(plain));
  EXPECT_LT(fused.arena_bytes, plain.arena_bytes) << "backward does not read what the ReLU before a pool wrote";
}

TEST(Fusion, SumsOfSeveralMicroBatchesAreAddedToWhatWasThere) {
  const ModelGraph graph = build_model({.name = "vgg-nano"});
  const Program fused = lower(of_one_rank(graph, 3), graph, 0, {no_workspace, all_fusions});
  std::map<int, std::vector<std::int64_t>> added;  // by micro-batch
  for (const Instruction& in : fused.body) {
    if (in.outputs.size() < 2 || in.kernel != Kernel::max_pool_backward) continue;
    added[in.micro_batch].push_back(in.attributes.integer("accumulate"));
  }
  EXPECT_THAT(added[0], testing::Each(0));
  EXPECT_THAT(added[1], testing::Each(2));
  EXPECT_THAT(added[2], testing::SizeIs(5));
}

TEST(Fusion, AnActivationThatOthersReadIsLeftToThem) {
  // ResNet's ReLUs stand behind batch norms and sums: its convolutions have none of their own, and no bias.
  const ModelGraph graph = build_model({.name = "resnet-nano"});
  Plan base = asked(4, 1);
  const Plan plan = planned(find_planner("single"), graph, base);
  const Program plain = lower(plan, graph, 0, no_workspace);
  const Program fused = lower(plan, graph, 0, {no_workspace, all_fusions});
  std::map<std::string, int> before = count_kernels(plain);
  std::map<std::string, int> after = count_kernels(fused);
  EXPECT_EQ(after["relu_forward"], before["relu_forward"]);
}

ModelGraph small_gpt() { return build_model({.name = "gpt-nano", .vocabulary = 101, .sequence_length = 33}); }

TEST(Fusion, GeluIsComputedWithTheProductsBesideIt) {
  const ModelGraph graph = small_gpt();
  const Plan plan = of_one_rank(graph, 2);
  const Program plain = lower(plan, graph, 0, no_workspace);
  const Program fused = lower(plan, graph, 0, {no_workspace, {.linear_gelu = true}});
  std::map<std::string, int> before = count_kernels(plain);
  std::map<std::string, int> after = count_kernels(fused);
  const int layers_of_all = 2 * 2;  // and micro-batches
  ASSERT_EQ(before["gelu_forward"], layers_of_all);
  EXPECT_EQ(after["gelu_forward"], 0);
  EXPECT_EQ(after["gelu_backward"], 0);
  int num_forward = 0;
  int num_backward = 0;
  for (const Instruction& in : fused.body) {
    if (in.attributes.integer_or("gelu", 0) == 0) continue;
    if (in.kernel == Kernel::linear_forward) {
      EXPECT_TRUE(in.name.ends_with("mlp.fc1")) << in.name;
      EXPECT_EQ(in.outputs.size(), 2U) << in.name << ": backward reads what GELU is applied to";
      ++num_forward;
    } else {
      EXPECT_TRUE(in.name.ends_with("mlp.fc2")) << in.name;
      EXPECT_EQ(in.kernel, Kernel::linear_backward_input);
      EXPECT_EQ(in.inputs.size(), 3U) << in.name;
      ++num_backward;
    }
  }
  EXPECT_EQ(num_forward, layers_of_all);
  EXPECT_EQ(num_backward, layers_of_all);
  EXPECT_EQ(flops_per_step(fused), flops_per_step(plain));
  // Forward reads once less what GELU is applied to; backward neither writes nor reads the gradient of GELU's output.
  const std::int64_t activation = 4 * 33 * 256 * size_of(plan.dtypes.compute);
  EXPECT_EQ(bytes(plain) - bytes(fused), layers_of_all * 3 * activation);
  EXPECT_EQ(fused.arena_bytes, plain.arena_bytes);
}

TEST(Fusion, NormsAddWhatTheyNormalise) {
  const ModelGraph llama = build_model({.name = "llama-nano", .vocabulary = 101, .sequence_length = 33});
  for (const ModelGraph& graph : {small_gpt(), llama}) {
    const Plan plan = of_one_rank(graph, 2);
    const Program plain = lower(plan, graph, 0, no_workspace);
    const Program fused = lower(plan, graph, 0, {no_workspace, {.add_norm = true}});
    std::map<std::string, int> before = count_kernels(plain);
    std::map<std::string, int> after = count_kernels(fused);
    // Two of each block, of two, of two micro-batches; the norm of what is added where a block ends is the next
    // block's, or the head's, which is another item of the order.
    const int num_sums = 2 * 2 * 2;
    ASSERT_EQ(before["add"], num_sums) << graph.name;
    EXPECT_EQ(after["add"], 0) << graph.name;
    int num_adding = 0;
    for (const Instruction& in : fused.body) {
      if (in.attributes.integer_or("adds", 0) == 0) continue;
      EXPECT_EQ(in.outputs.size(), 3U) << in.name;
      EXPECT_EQ(in.inputs.size(), in.kernel == Kernel::layer_norm_forward ? 4U : 3U) << in.name;
      ++num_adding;
    }
    EXPECT_EQ(num_adding, num_sums) << graph.name;
    // The sum is not read back.
    const auto sum = std::ranges::find(plain.body, Kernel::add, &Instruction::kernel);
    const std::int64_t activation = sum->attributes.integer("elements") * size_of(plan.dtypes.compute);
    EXPECT_EQ(bytes(plain) - bytes(fused), num_sums * activation) << graph.name;
    EXPECT_EQ(fused.arena_bytes, plain.arena_bytes) << graph.name;
  }
}

TEST(Fusion, WhatGeluIsAppliedToIsWrittenWhereItIsRead) {
  const ModelGraph graph = small_gpt();
  Plan plan = of_one_rank(graph);
  plan.recompute = Recompute::block;
  int num_alone = 0;
  const Program fused = lower(plan, graph, 0, {no_workspace, {.linear_gelu = true}});
  EXPECT_LE(fused.arena_bytes, lower(plan, graph, 0, no_workspace).arena_bytes);
  for (const Instruction& in : fused.body) {
    if (in.kernel != Kernel::linear_forward || in.attributes.integer_or("gelu", 0) == 0) continue;
    // The first time nothing reads it: backward begins with the second.
    const bool is_again = in.phase == Phase::recompute;
    EXPECT_EQ(in.outputs.size(), is_again ? 2U : 1U) << in.name;
    num_alone += is_again ? 0 : 1;
  }
  EXPECT_EQ(num_alone, 2);
}

TEST(Fusion, OtherGelusAndThoseOfRowsThatAreNoVectorsStay) {
  for (const auto& [options, kernel] :
       {std::pair{ModelOptions{.name = "vit-nano"}, "gelu_erf_forward"},
        std::pair{ModelOptions{.name = "gpt-nano", .ffn_hidden = 252, .vocabulary = 104}, "gelu_forward"}}) {
    const ModelGraph graph = build_model(options);
    const Plan plan = of_one_rank(graph);
    const Program fused = lower(plan, graph, 0, {no_workspace, {.linear_gelu = true}});
    EXPECT_GT(count_kernels(fused)[kernel], 0) << kernel;
    EXPECT_EQ(fused, lower(plan, graph, 0, no_workspace)) << kernel;
  }
}

TEST(Fusion, EveryModesProgramsStayWhole) {
  for (const ModelGraph& graph : {build_model({.name = "vgg-nano"}), small_gpt()}) {
    int num_modes = 0;
    for (const Planner* planner : all_planners()) {
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        Plan base = asked(8, 4);
        base.schedule.micro_batches = 2;
        base.recompute = recompute;
        base.overlap.bucket_bytes = 4096;
        std::vector<Program> fused;
        try {
          fused = all_ranks(planned(*planner, graph, base), graph, {no_workspace, all_fusions});
        } catch (const UserError&) {
          continue;  // modes for other numbers of ranks and micro-batches, or that ask about a machine
        } catch (const Unsupported&) {
          continue;
        }
        EXPECT_NO_THROW(verify(fused)) << planner->name();
        std::map<std::string, int> after = count_kernels(fused.front());
        EXPECT_GT(after["convolution_forward"] + after["layer_norm_forward"], 0) << planner->name();
        ++num_modes;
      }
    }
    EXPECT_GE(num_modes, 12) << graph.name;
  }
}

}  // namespace
}  // namespace strata::test_fusion
