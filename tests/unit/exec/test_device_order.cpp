/// @file
/// What an executor on a device decides without one: waits, graphs, layouts of matrix products, times of a step,
/// workspaces.

#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <vector>

#include "exec/device/graph_use.hpp"
#include "exec/device/matmul_layout.hpp"
#include "exec/device/step_times.hpp"
#include "exec/device/stream_order.hpp"
#include "exec/device/workspace.hpp"
#include "support/refusal.hpp"

namespace strata::test_device_order {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Instruction kernel(int stream, std::vector<Wait> waits = {}) {
  return {.kernel = Kernel::fill, .stream = stream, .waits = std::move(waits)};
}
Instruction collective(int stream, std::vector<Wait> waits = {}) {
  return {.kernel = Kernel::none, .stream = stream, .waits = std::move(waits)};
}

TEST(StreamOrder, OnTheDeviceOtherStreamsAreWaitedForByEvents) {
  const std::vector<Instruction> section = {kernel(0), collective(1, {{0}}), kernel(0), kernel(0, {{1}}),
                                            collective(1, {{2}})};
  const auto order = stream_order(section, 2, CollectivesOn::device);
  EXPECT_THAT(order[0].device_waits, IsEmpty());
  EXPECT_TRUE(order[0].records);
  EXPECT_THAT(order[1].device_waits, ElementsAre(0));
  EXPECT_TRUE(order[1].records);
  EXPECT_THAT(order[2].device_waits, IsEmpty());  // its own stream keeps order
  EXPECT_THAT(order[3].device_waits, ElementsAre(1));
  EXPECT_FALSE(order[3].records);
  EXPECT_THAT(order[4].device_waits, ElementsAre(2));
  for (const IssueOrder& issue : order) {
    EXPECT_THAT(issue.host_kernels, IsEmpty());
    EXPECT_THAT(issue.host_collectives, IsEmpty());
  }
}

Instruction message(Collective kind, int stream) {
  return {.kernel = Kernel::none, .collective = kind, .stream = stream};
}

TEST(StreamOrder, OnTheDeviceCollectivesFollowEachOtherWhateverTheirStreams) {
  const std::vector<Instruction> section = {collective(1), collective(2), collective(2), collective(1)};
  const auto order = stream_order(section, 3, CollectivesOn::device);
  EXPECT_THAT(order[1].device_waits, ElementsAre(0));
  EXPECT_TRUE(order[0].records);
  EXPECT_THAT(order[2].device_waits, IsEmpty());
  EXPECT_THAT(order[3].device_waits, ElementsAre(2));
}

TEST(GraphUse, IsWhereTheHostHasNoPartAndNoMessageMustRunBesideAnother) {
  using enum cuda::GraphUse;
  using enum CollectivesOn;
  Program program;
  program.body = {kernel(0), collective(1), collective(1)};
  EXPECT_TRUE(cuda::uses_graph(program, device, automatic));
  EXPECT_TRUE(cuda::uses_graph(program, device, on));
  EXPECT_FALSE(cuda::uses_graph(program, device, off));
  EXPECT_FALSE(cuda::uses_graph(program, host, automatic));
  EXPECT_THAT(refusal([&] { cuda::uses_graph(program, host, on); }),
              testing::AllOf(testing::HasSubstr("cuda.graphs = \"on\""), testing::HasSubstr("device_transport")));
  program.body.push_back(message(Collective::recv, 1));
  EXPECT_FALSE(cuda::uses_graph(program, device, automatic));
  EXPECT_THAT(refusal([&] { cuda::uses_graph(program, device, on); }), testing::HasSubstr("messages"));
  program.body = {kernel(0)};
  EXPECT_TRUE(cuda::uses_graph(program, host, automatic));
}

/// A rank that sends and then receives, beside one that receives and then sends: either order would lock one of them.
TEST(StreamOrder, OnTheDeviceMessagesRunSideBySide) {
  const std::vector<Instruction> section = {collective(1), message(Collective::send, 2), message(Collective::recv, 3),
                                            collective(4)};
  const auto order = stream_order(section, 5, CollectivesOn::device);
  EXPECT_THAT(order[1].device_waits, IsEmpty());
  EXPECT_THAT(order[2].device_waits, IsEmpty());
  EXPECT_THAT(order[3].device_waits, ElementsAre(0));
}

TEST(StreamOrder, OnTheHostCollectivesWaitForKernelsAndKernelsForCollectives) {
  const std::vector<Instruction> section = {kernel(0), collective(1, {{0}}), collective(1), collective(2, {{2}}),
                                            kernel(0, {{1}})};
  const auto order = stream_order(section, 3, CollectivesOn::host);
  EXPECT_THAT(order[1].host_kernels, ElementsAre(0));
  EXPECT_TRUE(order[0].records);
  EXPECT_THAT(order[2].host_collectives, IsEmpty());  // the engine keeps the order of its streams
  EXPECT_THAT(order[3].host_collectives, ElementsAre(2));
  EXPECT_THAT(order[4].host_collectives, ElementsAre(1));
  EXPECT_THAT(order[4].device_waits, IsEmpty());
  EXPECT_FALSE(order[1].records);
}

TEST(StreamOrder, KernelsAndCollectivesOfOneStreamFollowEachOtherOnTheHostToo) {
  const std::vector<Instruction> section = {kernel(1), collective(1), kernel(1)};
  const auto order = stream_order(section, 2, CollectivesOn::host);
  EXPECT_THAT(order[1].host_kernels, ElementsAre(0));
  EXPECT_THAT(order[2].host_collectives, ElementsAre(1));
}

TEST(StreamOrder, OfOneRepetitionHoldsNoWaitForEarlierOnes) {
  const auto order = stream_order({kernel(0), kernel(1, {{0, 1}})}, 2, CollectivesOn::device);
  EXPECT_THAT(order[1].device_waits, IsEmpty());
  EXPECT_FALSE(order[0].records);
}

TEST(StreamOrder, GoesOnFromRepetitionToRepetitionAndOverWhatIsLeftOut) {
  const std::vector<Instruction> section = {collective(1), collective(2), kernel(0, {{1, 1}})};
  StreamOrder order(section, 3, CollectivesOn::device);
  EXPECT_THAT(order.next({0, 0}, {}).device_waits, IsEmpty());
  // The second collective is left out of repetition 0, and its stream does not break the order of all.
  EXPECT_THAT(order.next({2, 0}, {}).device_waits, IsEmpty());
  EXPECT_THAT(order.next({0, 1}, {}).device_waits, IsEmpty());
  EXPECT_THAT(order.next({1, 1}, {}).device_waits, ElementsAre(Instance{0, 1}));
  EXPECT_THAT(order.next({0, 2}, {}).device_waits, ElementsAre(Instance{1, 1}));
  const std::vector<Instance> waits = {{1, 1}};
  EXPECT_THAT(order.next({2, 2}, waits).device_waits, ElementsAre(Instance{1, 1}));
}

TEST(StreamOrder, OnTheHostAKernelFollowsTheCollectiveBeforeItInAnEarlierRepetition) {
  const std::vector<Instruction> section = {kernel(1), collective(1)};
  StreamOrder order(section, 2, CollectivesOn::host);
  EXPECT_THAT(order.next({0, 0}, {}).host_collectives, IsEmpty());
  EXPECT_THAT(order.next({1, 0}, {}).host_kernels, ElementsAre(Instance{0, 0}));
  EXPECT_THAT(order.next({0, 1}, {}).host_collectives, ElementsAre(Instance{1, 0}));
}

TEST(GraphUse, NeverHoldsStepsThatOverlap) {
  Program program;
  program.join = false;
  program.body = {kernel(0)};
  EXPECT_FALSE(cuda::uses_graph(program, CollectivesOn::device, cuda::GraphUse::automatic));
  EXPECT_THAT(refusal([&] { cuda::uses_graph(program, CollectivesOn::device, cuda::GraphUse::on); }),
              testing::AllOf(testing::HasSubstr("cuda.graphs = \"on\""), testing::HasSubstr("steps overlap")));
}

TEST(GraphUse, NeverHoldsStepsOfWhichEachMayBeTheLast) {
  Program program;
  program.steps_per_body = 2;
  program.body = {kernel(0)};
  EXPECT_FALSE(cuda::uses_graph(program, CollectivesOn::device, cuda::GraphUse::automatic));
  EXPECT_THAT(refusal([&] { cuda::uses_graph(program, CollectivesOn::device, cuda::GraphUse::on); }),
              testing::HasSubstr("the body holds 2 steps"));
}

/// What BLAS computes: column-major, entry by entry.
std::vector<float> multiply(const MatmulLayout& l, const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> d(static_cast<std::size_t>(l.ldd * l.n));
  for (std::int64_t i = 0; i < l.m; ++i) {
    for (std::int64_t j = 0; j < l.n; ++j) {
      float sum = 0.0F;
      for (std::int64_t p = 0; p < l.k; ++p) {
        const std::int64_t at_a = l.transpose_a ? p + i * l.lda : i + p * l.lda;
        const std::int64_t at_b = l.transpose_b ? j + p * l.ldb : p + j * l.ldb;
        sum += a[static_cast<std::size_t>(at_a)] * b[static_cast<std::size_t>(at_b)];
      }
      d[static_cast<std::size_t>(i + j * l.ldd)] = sum;
    }
  }
  return d;
}

std::vector<float> counted(std::int64_t n, int seed) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>((i * 7 + seed) % 11 - 5));
  return values;
}

TEST(MatmulLayout, TheLinearLayerRowMajor) {
  const LinearDims d{.tokens = 3, .in = 4, .out = 5};
  const auto at = [](const std::vector<float>& m, std::int64_t columns, std::int64_t r, std::int64_t c) {
    return m[static_cast<std::size_t>(r * columns + c)];
  };
  const auto x = counted(d.tokens * d.in, 1);
  const auto w = counted(d.out * d.in, 2);
  const auto dy = counted(d.tokens * d.out, 3);
  const auto y = multiply(linear_forward_layout(d), w, x);
  const auto dx = multiply(linear_backward_input_layout(d), w, dy);
  const auto dw = multiply(linear_backward_weight_layout(d), x, dy);
  for (std::int64_t t = 0; t < d.tokens; ++t) {
    for (std::int64_t o = 0; o < d.out; ++o) {
      float sum = 0.0F;
      for (std::int64_t i = 0; i < d.in; ++i) sum += at(x, d.in, t, i) * at(w, d.in, o, i);
      EXPECT_EQ(at(y, d.out, t, o), sum);
    }
    for (std::int64_t i = 0; i < d.in; ++i) {
      float sum = 0.0F;
      for (std::int64_t o = 0; o < d.out; ++o) sum += at(dy, d.out, t, o) * at(w, d.in, o, i);
      EXPECT_EQ(at(dx, d.in, t, i), sum);
    }
  }
  for (std::int64_t o = 0; o < d.out; ++o) {
    for (std::int64_t i = 0; i < d.in; ++i) {
      float sum = 0.0F;
      for (std::int64_t t = 0; t < d.tokens; ++t) sum += at(dy, d.out, t, o) * at(x, d.in, t, i);
      EXPECT_EQ(at(dw, d.in, o, i), sum);
    }
  }
}

TEST(MatmulLayout, AlignmentOfAnAddress) {
  EXPECT_EQ(alignment_bytes(0x1000), 256U);
  EXPECT_EQ(alignment_bytes(0x1040), 64U);
  EXPECT_EQ(alignment_bytes(0x1006), 2U);
}

TEST(StepTimes, ExposedIsTheGapBeforeAKernelThatWaitsForACollective) {
  Program program{.streams = {"compute", "communication"}};
  program.body = {kernel(0), collective(1, {{0}}), kernel(0), kernel(0, {{1}})};
  constexpr std::int64_t ms = 1'000'000;
  const std::vector<TimelineEvent> events = {
      {.instruction = 0, .begin_ns = 0, .end_ns = 10 * ms},
      {.instruction = 1, .begin_ns = 10 * ms, .end_ns = 30 * ms},
      {.instruction = 2, .begin_ns = 10 * ms, .end_ns = 22 * ms},
      {.instruction = 3, .begin_ns = 31 * ms, .end_ns = 40 * ms},
  };
  StepMeasurement m;
  add_step_times(program, events, m);
  EXPECT_NEAR(m.compute_seconds, 0.031, 1e-12);
  EXPECT_NEAR(m.communication_seconds, 0.020, 1e-12);
  EXPECT_NEAR(m.exposed_seconds, 0.008, 1e-12);
}

TEST(DeviceWorkspace, RowBlocksCoverTheRowsOnce) {
  for (const std::int64_t rows : {1, 2, 255, 256, 257, 1000}) {
    EXPECT_EQ(cuda::row_block_begin(rows, 0), 0);
    EXPECT_EQ(cuda::row_block_begin(rows, cuda::num_row_blocks(rows)), rows);
    for (std::int64_t b = 0; b < cuda::num_row_blocks(rows); ++b) {
      EXPECT_LT(cuda::row_block_begin(rows, b), cuda::row_block_begin(rows, b + 1));
    }
  }
}

TEST(DeviceWorkspace, IsAFunctionOfTheInstruction) {
  Program program;
  program.buffers = {{.name = "x", .dtype = DType::bf16}, {.name = "dw", .dtype = DType::f32}};
  Instruction in{.kernel = Kernel::linear_backward_weight,
                 .inputs = {{.buffer = 0}, {.buffer = 0}},
                 .outputs = {{.buffer = 1}},
                 .attributes = {{"rows", std::int64_t{8}}, {"in", std::int64_t{4}}, {"out", std::int64_t{6}}}};
  EXPECT_EQ(cuda::workspace_bytes(program, in, {}), cuda::matmul_workspace_bytes);
  in.outputs.push_back({.buffer = 1});
  EXPECT_EQ(cuda::workspace_bytes(program, in, {}), cuda::matmul_workspace_bytes + 8 * 6 * 4);
}

}  // namespace
}  // namespace strata::test_device_order
