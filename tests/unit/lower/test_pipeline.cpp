/// @file
/// Programs of stages: no deadlock without buffering, inputs where they are read, memory and volume as the modes'
/// docstrings say.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "models/graph_builder.hpp"
#include "unit/lower/activation_peak.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_pipeline {
namespace {

constexpr const char* modes[] = {"gpipe", "1f1b"};

/// Five blocks each: uneven in two, three and four stages.
std::vector<ModelGraph> models() {
  return {build_model({.name = "gpt-nano", .layers = 5, .dropout = 0.1, .tied_head = true}),
          build_model({.name = "llama-nano", .layers = 5}), build_model({.name = "vgg-nano"}),
          build_model({.name = "vit-nano", .layers = 5, .dropout = 0.1}),
          build_model({.name = "mlp", .dropout = 0.2, .widths = {48, 64, 32, 40, 24, 16, 10}})};
}

struct Shape {
  int stages = 1;
  int data = 1;
  int micro_batches = 1;
};

/// Two samples a micro-batch and replica, whatever the shape.
Plan pipeline(const char* mode, const ModelGraph& graph, const Shape& shape, Plan base = {}) {
  base.mesh.ranks_per_node = shape.stages * shape.data;
  base.global_batch = std::int64_t{2} * shape.data * shape.micro_batches;
  base.schedule.micro_batches = shape.micro_batches;
  base.overlap.bucket_bytes = 4096;
  return planned(find_planner(mode), graph, base, {{"stages", std::int64_t{shape.stages}}});
}

std::string text(const char* mode, const ModelGraph& graph, const Shape& shape) {
  return fmt::format("{} of {}: {} stages, {} replicas, {} micro-batches", mode, graph.name, shape.stages, shape.data,
                     shape.micro_batches);
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (int stages = 1; stages <= 5; ++stages) {
    for (const int micro_batches : {1, 2, 5, 8}) all.push_back({stages, 1, micro_batches});
    all.push_back({stages, 2, 3});
  }
  return all;
}

bool is_send_or_receive(const Instruction& in) {
  return in.is_collective() && (in.collective == Collective::send || in.collective == Collective::recv);
}

TEST(Pipeline, AllRanksMeetWithoutBuffering) {
  for (const ModelGraph& graph : models()) {
    for (const Shape& shape : shapes()) {
      for (const char* mode : modes) {
        for (const bool full : {false, true}) {  // recomputation, bf16, clipping, Adam
          Plan base;
          if (full) {
            base.recompute = Recompute::block;
            base.dtypes = {DType::bf16, DType::bf16};
            base.optimizer.clip_norm = 1.0;
          } else {
            base.optimizer.kind = "sgd";
          }
          const std::vector<Program> programs = all_ranks(pipeline(mode, graph, shape, base), graph, some_workspace);
          EXPECT_NO_THROW(verify(programs)) << text(mode, graph, shape);
          EXPECT_EQ(parse_program(to_text(programs.back())), programs.back()) << text(mode, graph, shape);
        }
      }
    }
  }
}

/// It updates nothing, and has its part in the norm of all gradients.
TEST(Pipeline, AStageWithoutParametersMeetsTheOthers) {
  GraphBuilder builder("relu-between");
  int x = builder.input("image", {6}, TensorRole::image);
  const int label = builder.input("label", {}, TensorRole::targets);
  for (int b = 0; b < 3; ++b) {
    builder.begin_block(fmt::format("block[{}]", b));
    if (b != 1) x = builder.linear("linear", x, {.in = b == 0 ? 6 : 8, .out = b == 0 ? 8 : 4});
    if (b == 1) x = builder.relu("relu", x);
    builder.end_block();
  }
  builder.cross_entropy("loss", x, label);
  const ModelGraph graph = builder.finish(1);
  for (const char* mode : modes) {
    Plan base;
    base.optimizer.clip_norm = 1.0;
    const std::vector<Program> programs = all_ranks(pipeline(mode, graph, {3, 1, 2}, base), graph, some_workspace);
    EXPECT_NO_THROW(verify(programs)) << mode;
  }
}

TEST(Pipeline, ADirectionToANeighbourHasAStreamOfItsOwn) {
  const ModelGraph graph = models().front();
  for (const Program& program : all_ranks(pipeline("1f1b", graph, {3, 2, 4}), graph, no_workspace)) {
    for (const Instruction& in : program.body) {
      const bool is_link = program.streams[static_cast<std::size_t>(in.stream)].starts_with("stage");
      EXPECT_EQ(is_link, is_send_or_receive(in)) << in.name;
      if (!is_link) continue;
      const int stage = program.rank / 2;
      const bool sends = in.collective == Collective::send;
      EXPECT_EQ(program.streams[static_cast<std::size_t>(in.stream)],
                fmt::format("stage{}to{}", sends ? stage : in.root, sends ? in.root : stage));
      EXPECT_EQ(std::abs(in.root - stage), 1);
    }
  }
}

/// Tensor and micro-batch of each message on stream @p stream, in order.
std::vector<std::string> messages(const Program& program, const std::string& stream, Collective kind) {
  std::vector<std::string> list;
  for (const Instruction& in : program.body) {
    if (is_send_or_receive(in) && in.collective == kind &&
        program.streams[static_cast<std::size_t>(in.stream)] == stream) {
      list.push_back(fmt::format("{} of {}", in.name, in.micro_batch));
    }
  }
  return list;
}

TEST(Pipeline, WhatIsSentIsWhatIsReceived) {
  const ModelGraph graph = models().front();
  for (const char* mode : modes) {
    for (const int micro_batches : {1, 2, 6}) {
      const std::vector<Program> programs =
          all_ranks(pipeline(mode, graph, {4, 1, micro_batches}), graph, no_workspace);
      for (int from = 0; from < 4; ++from) {
        for (const int to : {from - 1, from + 1}) {
          if (to < 0 || to > 3) continue;
          const std::string stream = fmt::format("stage{}to{}", from, to);
          const auto sent = messages(programs[static_cast<std::size_t>(from)], stream, Collective::send);
          EXPECT_EQ(std::ssize(sent), micro_batches);
          EXPECT_EQ(sent, messages(programs[static_cast<std::size_t>(to)], stream, Collective::recv));
        }
      }
    }
  }
}

TEST(Pipeline, InputsAreLoadedByTheFirstStageAndTargetsByTheLast) {
  for (const ModelGraph& graph : models()) {
    const int micro_batches = 3;
    const std::vector<Program> programs =
        all_ranks(pipeline("1f1b", graph, {4, 1, micro_batches}), graph, no_workspace);
    for (const Program& program : programs) {
      int inputs = 0;
      int targets = 0;
      for (const Instruction& in : program.body) {
        if (in.kernel == Kernel::load_tokens || in.kernel == Kernel::load_images) {
          ++inputs;
          EXPECT_EQ(in.outputs.size(), 1U) << "targets are not read here";
          EXPECT_EQ(in.attributes.integer("first_sample"), 2 * in.micro_batch);
        }
        if (in.kernel == Kernel::load_targets) {
          ++targets;
          EXPECT_EQ(in.attributes.integer("first_sample"), 2 * in.micro_batch);
        }
      }
      EXPECT_EQ(inputs, program.rank == 0 ? micro_batches : 0) << graph.name;
      EXPECT_EQ(targets, program.rank == 3 ? micro_batches : 0) << graph.name;
    }
  }
}

/// The most micro-batches of which some activation is alive at once.
int most_in_flight(const Program& program) {
  std::vector<int> micro_batch_of(program.buffers.size(), -1);
  std::vector<int> alive;  // by micro-batch: buffers
  int most = 0;
  for (const Instruction& in : program.body) {
    alive.resize(std::max(alive.size(), static_cast<std::size_t>(in.micro_batch) + 1), 0);
    for (const int id : in.allocs) {
      if (program.buffers[static_cast<std::size_t>(id)].category != Category::activation) continue;
      micro_batch_of[static_cast<std::size_t>(id)] = in.micro_batch;
      ++alive[static_cast<std::size_t>(in.micro_batch)];
    }
    most = std::max(most, static_cast<int>(std::ranges::count_if(alive, [](int buffers) { return buffers > 0; })));
    for (const int id : in.frees) {
      const int m = micro_batch_of[static_cast<std::size_t>(id)];
      if (m >= 0) --alive[static_cast<std::size_t>(m)];
    }
  }
  return most;
}

TEST(Pipeline, OneForwardOneBackwardHoldsFewMicroBatchesAndGpipeAll) {
  for (const ModelGraph& graph : models()) {
    for (const Shape& shape : shapes()) {
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        for (const char* mode : modes) {
          Plan base;
          base.recompute = recompute;
          for (const Program& program : all_ranks(pipeline(mode, graph, shape, base), graph, no_workspace)) {
            const int stage = program.rank / shape.data;
            EXPECT_EQ(most_in_flight(program), std::string_view(mode) == "gpipe"
                                                   ? shape.micro_batches
                                                   : std::min(shape.micro_batches, shape.stages - stage))
                << text(mode, graph, shape) << ", stage " << stage;
          }
        }
      }
    }
  }
}

/// Bytes of the first micro-batch's activations that are alive when its stage's next pass begins.
std::int64_t kept_of_a_micro_batch(const Program& gpipe_of_many) {
  std::set<int> alive;
  for (const Instruction& in : gpipe_of_many.body) {
    if (in.micro_batch == 1 && !is_send_or_receive(in)) break;
    if (in.micro_batch != 0 || is_send_or_receive(in)) {
      for (const int id : in.frees) alive.erase(id);
      if (in.micro_batch != 0) continue;
    }
    alive.insert(in.allocs.begin(), in.allocs.end());
    for (const int id : in.frees) alive.erase(id);
  }
  std::int64_t bytes = 0;
  for (const int id : alive) {
    const Buffer& buffer = gpipe_of_many.buffers[static_cast<std::size_t>(id)];
    if (buffer.category == Category::activation) bytes += buffer.size_bytes();
  }
  return bytes;
}

/// M A_s or min(M, S - s) A_s, and what one pass needs beside.
TEST(Pipeline, ActivationsTakeWhatTheDocstringsSay) {
  for (const ModelGraph& graph : models()) {
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      Plan base;
      base.recompute = recompute;
      for (int stage = 0; stage < 4; ++stage) {
        const auto program = [&](const char* mode, int micro_batches) {
          return lower(pipeline(mode, graph, {4, 1, micro_batches}, base), graph, stage, no_workspace);
        };
        const std::int64_t kept = kept_of_a_micro_batch(program("gpipe", 8));
        EXPECT_GT(kept, 0);
        const std::int64_t of_two = peak_activations(program("gpipe", 2));
        for (const int micro_batches : {3, 5, 9}) {
          EXPECT_EQ(peak_activations(program("gpipe", micro_batches)), of_two + (micro_batches - 2) * kept)
              << graph.name << " stage " << stage;
          const int held = std::min(micro_batches, 4 - stage);
          const std::int64_t expected = peak_activations(program("1f1b", held));
          EXPECT_EQ(peak_activations(program("1f1b", micro_batches)), expected) << graph.name << " stage " << stage;
          if (held > 2) {
            EXPECT_EQ(expected, peak_activations(program("1f1b", 2)) + (held - 2) * kept) << graph.name;
          }
        }
        // The arena, which knows when other streams are through, needs no more for more micro-batches either.
        EXPECT_EQ(program("1f1b", 24).arena_bytes, program("1f1b", 12).arena_bytes) << graph.name << " " << stage;
      }
    }
  }
}

TEST(Pipeline, StatesAreOfTheStageAndATiedTableIsOnBothEnds) {
  for (const ModelGraph& graph : models()) {
    const std::vector<Program> programs = all_ranks(pipeline("gpipe", graph, {3, 1, 2}), graph, no_workspace);
    std::map<std::string, int> holders;
    std::int64_t elements = 0;
    for (const Program& program : programs) {
      for (const Buffer& buffer : program.buffers) {
        if (buffer.parameter.empty()) continue;
        ++holders[buffer.parameter];
        elements += buffer.num_elements;
      }
    }
    std::int64_t twice = 0;
    for (const Parameter& parameter : graph.parameters) {
      const bool tied = parameter.name == "embedding.table" && graph.name == "gpt-nano";
      EXPECT_EQ(holders[parameter.name], tied ? 2 : 1) << graph.name << " " << parameter.name;
      twice += tied ? parameter.num_elements() : 0;
    }
    EXPECT_EQ(elements, graph.num_parameters() + twice);
  }
}

/// Elements of one sample that cross each cut: one tensor in all of these models.
std::vector<std::int64_t> crossing_elements(const std::vector<Program>& programs) {
  std::vector<std::int64_t> elements;
  for (std::size_t stage = 0; stage + 1 < programs.size(); ++stage) {
    for (const Instruction& in : programs[stage].body) {
      if (in.collective == Collective::send && is_send_or_receive(in) && in.phase == Phase::forward) {
        elements.push_back(in.inputs[0].num_elements / 2);
        break;
      }
    }
  }
  return elements;
}

TEST(Pipeline, BytesAreWhatTheDocstringsSay) {
  for (const ModelGraph& graph : models()) {
    const bool tied = graph.name == "gpt-nano";
    for (const char* mode : modes) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const std::int64_t size = size_of(dtype);
        for (const Shape shape : {Shape{3, 1, 5}, Shape{3, 2, 2}, Shape{2, 3, 1}, Shape{4, 2, 3}}) {
          Plan base;
          base.dtypes = {dtype, dtype};
          base.optimizer.clip_norm = 1.0;
          const std::vector<Program> programs = all_ranks(pipeline(mode, graph, shape, base), graph, no_workspace);
          const std::vector<std::int64_t> crossing = crossing_elements(
              all_ranks(pipeline(mode, graph, {shape.stages, 1, shape.micro_batches}, base), graph, no_workspace));
          ASSERT_EQ(std::ssize(crossing), shape.stages - 1);
          std::int64_t all_reduce = 0;
          for (const Program& program : programs) {
            const int stage = program.rank / shape.data;
            std::int64_t expected = 0;
            for (const int cut : {stage - 1, stage}) {
              if (cut < 0 || cut + 1 >= shape.stages) continue;
              expected += 2 * shape.micro_batches * crossing[static_cast<std::size_t>(cut)] * size;
            }
            const BytesByCollective bytes = bytes_by_collective(program);
            EXPECT_EQ(bytes[Collective::send], expected) << text(mode, graph, shape) << ", stage " << stage;
            all_reduce += bytes[Collective::all_reduce];
          }
          const std::int64_t copied = tied ? graph.parameters.front().num_elements() : 0;
          EXPECT_EQ(all_reduce, 2 * (shape.data - 1) * (graph.num_parameters() + copied) * size +
                                    2 * copied * size * shape.data + 2 * (shape.stages - 1) * 4 * shape.data)
              << text(mode, graph, shape);
        }
      }
    }
  }
}

TEST(Pipeline, ReplicasReduceUnderTheLastBackward) {
  for (const char* mode : modes) {
    const ModelGraph graph = build_model({.name = "llama-nano", .layers = 4});
    for (const Program& program : all_ranks(pipeline(mode, graph, {2, 2, 3}), graph, no_workspace)) {
      std::size_t last_backward = 0;
      int reductions = 0;
      int under_backward = 0;
      for (std::size_t i = 0; i < program.body.size(); ++i) {
        if (!program.body[i].is_collective() && program.body[i].phase == Phase::backward) last_backward = i;
      }
      for (std::size_t i = 0; i < program.body.size(); ++i) {
        if (!program.body[i].is_collective() || program.body[i].phase != Phase::reduce) continue;
        ++reductions;
        under_backward += i < last_backward ? 1 : 0;
      }
      EXPECT_GE(reductions, 3);
      EXPECT_GE(under_backward, reductions - 2);
    }
  }
}

TEST(Pipeline, RefusalsHaveNumbers) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const auto refusal = [&](int ranks, std::int64_t stages) {
    try {
      planned(find_planner("1f1b"), graph, asked(24, ranks), {{"stages", stages}});
    } catch (const Unsupported& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal(4, 2), "accepted");
  EXPECT_EQ(refusal(1, 0), "accepted");
  EXPECT_EQ(refusal(3, 0), "accepted") << "one stage, as there are no two that divide three ranks";
  EXPECT_EQ(refusal(3, 3), "1f1b: 3 stages on 3 ranks, but gpt-nano has 2 blocks, and a stage has one or more");
  EXPECT_EQ(refusal(3, 2), "1f1b: 1 nodes × 3 ranks a node = 3 ranks are not divisible by 2 stages");
  // Micro-batches and replicas divide the batch.
  Plan uneven = asked(24, 4);
  uneven.schedule.micro_batches = 7;
  EXPECT_THROW(planned(find_planner("gpipe"), graph, uneven, {{"stages", std::int64_t{2}}}), Unsupported);
  // A plan that was edited by hand meets the rules and the cut themselves.
  Plan plan = planned(find_planner("gpipe"), graph, asked(24, 4), {{"stages", std::int64_t{2}}});
  plan.schedule.micro_batches = 7;
  EXPECT_THROW(lower(plan, graph, 0, no_workspace), UserError);
  Plan edited = planned(find_planner("gpipe"), build_model({.name = "gpt-nano", .layers = 4}), asked(24, 4));
  EXPECT_THROW(lower(edited, graph, 0, no_workspace), Unsupported);
}

}  // namespace
}  // namespace strata::test_pipeline
