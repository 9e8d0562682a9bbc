/// @file
/// What the executor measures is what the Program says: bytes by collective, arena, timeline.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "exec/device/fusions.hpp"
#include "mpi/exec/training.hpp"
#include "unit/ir/program/handmade_program.hpp"

namespace strata::test_executor {
namespace {

class ExecutorTest : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
};

std::vector<Training> trainings() {
  std::vector<Training> all;
  for (const char* model : {"gpt-nano", "llama-nano", "vgg-nano", "vit-nano", "mlp-tiny"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        Training training{.graph = build_model({.name = model}), .plan = {}};
        training.plan.global_batch = 12;
        training.plan.dtypes = {dtype, dtype};
        training.plan.recompute = recompute;
        training.plan.overlap.bucket_bytes = 4096;  // several buckets, and sizes that the ranks do not divide
        training.plan.optimizer.clip_norm = recompute == Recompute::none ? 1.0 : 0.0;
        training.steps = 2;
        training.learning_rate = 1e-3;
        all.push_back(std::move(training));
      }
    }
  }
  return all;
}

TEST_F(ExecutorTest, BytesByCollectiveAreTheProgrammedOnes) {
  for (const Training& training : trainings()) {
    const Trained trained = train(training, "ddp", world.size(), world, engine);
    const BytesByCollective predicted = bytes_by_collective(trained.program);
    for (int kind = 0; kind < num_collectives; ++kind) {
      EXPECT_EQ(trained.last_step.bytes_sent[static_cast<std::size_t>(kind)], predicted.bytes[kind])
          << training.graph.name << " " << to_string(static_cast<Collective>(kind));
    }
  }
}

TEST_F(ExecutorTest, ReplicasStayEqual) {
  for (const Training& training : trainings()) {
    const Trained trained = train(training, "ddp", world.size(), world, engine);
    for (const auto& [name, values] : trained.parameters) {
      const std::string mine(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      EXPECT_EQ(world.broadcast(mine), mine) << training.graph.name << " " << name;
    }
  }
}

/// Kernels of the CPU compute fused instructions too: the same values, but for the order of the sums behind a bias.
TEST_F(ExecutorTest, FusedProgramsTrainTheSame) {
  for (Training& training : trainings()) {
    if (!training.graph.name.starts_with("vgg") && !training.graph.name.starts_with("gpt")) continue;
    const std::string which =
        std::string(to_string(training.plan.dtypes.compute)) + " " + std::string(to_string(training.plan.recompute));
    const Trained plain = train(training, "ddp", world.size(), world, engine);
    training.backend.kernels = {cpu::workspaces_of({}), cuda::fusions};
    const Trained fused = train(training, "ddp", world.size(), world, engine);
    EXPECT_LT(fused.program.body.size(), plain.program.body.size()) << which;
    EXPECT_EQ(fused.losses.front(), plain.losses.front()) << which;
    const double tolerance = training.plan.dtypes.compute == DType::f32 ? 1e-5 : 1e-3;
    for (const auto& [name, values] : plain.parameters) {
      EXPECT_LE(relative_difference(fused.parameters.at(name), values), tolerance) << which << " " << name;
    }
  }
}

TEST_F(ExecutorTest, EventsCoverTheBodyInOrder) {
  const Training training = trainings().front();
  Plan plan = training.plan;
  plan.strategy = "ddp";
  plan.mesh.ranks_per_node = world.size();
  plan.mesh.axes = {{"data", world.size()}};
  const Program program = lower(plan, training.graph, world.rank(), cpu::workspaces_of({}));
  CountedInputs inputs(256, 10);
  cpu::CpuExecutor executor(program, engine, inputs, 1);
  executor.initialize();
  const StepMeasurement step = run_step(executor, {.step = 0, .learning_rate = 1e-3});
  ASSERT_EQ(executor.events().size(), program.body.size());
  double in_kernels = 0.0;
  std::int64_t kernel_end = 0;
  for (const TimelineEvent& event : executor.events()) {
    const Instruction& in = program.body[static_cast<std::size_t>(event.instruction)];
    EXPECT_EQ(event.stream, in.stream) << in.name;
    EXPECT_LE(event.begin_ns, event.end_ns);
    for (const Wait& wait : in.waits) {
      EXPECT_LE(executor.events()[static_cast<std::size_t>(wait.instruction)].end_ns, event.begin_ns) << in.name;
    }
    if (!in.is_collective()) {
      EXPECT_LE(kernel_end, event.begin_ns) << in.name;
      kernel_end = event.end_ns;
      in_kernels += static_cast<double>(event.end_ns - event.begin_ns) * 1e-9;
    }
  }
  EXPECT_NEAR(step.compute_seconds, in_kernels, 1e-6 + 1e-3 * in_kernels);
  EXPECT_LE(step.compute_seconds + step.exposed_seconds, step.step_seconds);
  EXPECT_TRUE(std::isfinite(step.loss));
}

/// Under a gradient that stays the same both moments, corrected for their beginning at zero, are it and its square from
/// the first step on: every step goes as far as the learning rate.
TEST_F(ExecutorTest, AdamGoesByTheLearningRateFromTheFirstStepOn) {
  constexpr std::int64_t n = 5;
  Handmade draft(world.rank(), world.size());
  std::vector<int> held;
  for (const char* name : {"loss", "gradient", "weight", "m", "v"}) {
    held.push_back(draft.buffer(name, std::string_view(name) == "loss" ? 1 : n, true));
    draft.initialize(held.back());
    draft.program.prologue.back().attributes = {{"elements", draft.whole(held.back()).num_elements}, {"value", 0.0}};
  }
  draft.program.loss_buffer = held[0];
  draft.program.body.push_back({.kernel = Kernel::adam,
                                .phase = Phase::update,
                                .name = "weight",
                                .inputs = {draft.whole(held[1])},
                                .outputs = {draft.whole(held[2]), draft.whole(held[3]), draft.whole(held[4])},
                                .attributes = {{"elements", n},
                                               {"weight_decay", 0.0},
                                               {"beta1", 0.9},
                                               {"beta2", 0.999},
                                               {"epsilon", 1e-8},
                                               {"decoupled", std::int64_t{0}}}});
  assign_addresses(draft.program);
  verify(draft.program);
  CountedInputs inputs(2, 2);
  cpu::CpuExecutor executor(draft.program, engine, inputs, 1);
  executor.initialize();
  executor.write(held[1], 0, std::vector<float>{-3.0F, -0.01F, 0.5F, 1.0F, 100.0F});
  for (int step = 0; step < 4; ++step) {
    run_step(executor, {.step = step, .learning_rate = 0.25});
    const float way = 0.25F * static_cast<float>(step + 1);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(executor.read(held[2])[i], i < 2 ? way : -way, 1e-5) << "element " << i << " after step " << step;
    }
  }
}

TEST_F(ExecutorTest, AReduceIsWrittenAtItsRootAlone) {
  constexpr std::int64_t n = 70001;  // on its way in several pieces
  for (int root = 0; root < world.size(); ++root) {
    Handmade draft(world.rank(), world.size());
    std::vector<int> members;
    for (int r = 0; r < world.size(); ++r) members.push_back(r);
    const int all = draft.group("all", members);
    const int loss = draft.buffer("loss", 1, true);
    const int part = draft.buffer("part", n, true);
    const int sum = draft.buffer("sum", n, true);
    Instruction& reduce = draft.collective(Collective::reduce, all, part, "parts", root);
    if (world.rank() == root) reduce.outputs = {draft.whole(sum)};
    for (const int id : {loss, part, sum}) {
      draft.initialize(id);
      draft.program.prologue.back().attributes = {{"elements", draft.whole(id).num_elements}, {"value", -1.0}};
    }
    draft.program.loss_buffer = loss;
    assign_addresses(draft.program);
    verify(draft.program);
    CountedInputs inputs(2, 2);
    cpu::CpuExecutor executor(draft.program, engine, inputs, 1);
    executor.initialize();
    std::vector<float> values(n);
    for (std::int64_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(world.rank() + i);
    executor.write(part, 0, values);
    const StepMeasurement step = run_step(executor, {});
    EXPECT_EQ(step.bytes_sent[static_cast<std::size_t>(Collective::reduce)],
              bytes_by_collective(draft.program)[Collective::reduce]);
    EXPECT_EQ(bytes_by_collective(draft.program)[Collective::reduce], world.rank() == root ? 0 : 4 * n);
    const int p = world.size();
    for (std::int64_t i = 0; i < n; ++i) {
      const auto expected = static_cast<float>(world.rank() == root ? p * i + p * (p - 1) / 2 : -1);
      ASSERT_EQ(executor.read(sum)[static_cast<std::size_t>(i)], expected) << "element " << i << ", root " << root;
    }
    EXPECT_TRUE(std::ranges::equal(executor.read(part), values)) << "inputs stay as they are";
  }
}

}  // namespace
}  // namespace strata::test_executor
