/// @file
/// What instructions ask of a described device, one by one and in sums.

#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cost/roofline.hpp"

namespace strata::test_roofline {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

Cluster described() {
  Cluster cluster;
  cluster.name = "described";
  cluster.device = "a device";
  cluster.peak_flops_per_second = {{"f32", 1e12}, {"bf16", 1e13}};
  cluster.memory_bandwidth_bytes_per_second = 1e11;
  return cluster;
}

/// Two products of y[rows,64] = x[rows,32] · W, with many and few rows, their sum over two ranks, and z += x of f32.
Program program() {
  Program p;
  p.num_ranks = 2;
  p.streams = {"compute", "communication"};
  p.groups = {{.name = "all", .ranks = {0, 1}}};
  p.buffers = {{.name = "x", .num_elements = 4096 * 32, .dtype = DType::bf16},
               {.name = "w", .num_elements = 32 * 64, .dtype = DType::bf16},
               {.name = "y", .num_elements = 4096 * 64, .dtype = DType::bf16},
               {.name = "a", .num_elements = 1000, .dtype = DType::f32},
               {.name = "b", .num_elements = 1000, .dtype = DType::f32}};
  const auto product = [](std::int64_t rows) {
    return Instruction{.kernel = Kernel::linear_forward,
                       .name = "fc",
                       .inputs = {{0, 0, rows * 32}, {1, 0, 32 * 64}},
                       .outputs = {{2, 0, rows * 64}},
                       .attributes = {{"rows", rows}, {"in", std::int64_t{32}}, {"out", std::int64_t{64}}}};
  };
  p.body = {product(4096),
            product(1),
            {.kernel = Kernel::accumulate, .name = "sum", .inputs = {{3, 0, 1000}}, .outputs = {{4, 0, 1000}}}};
  return p;
}

TEST(RooflineCost, IsTheLongerOfBytesAndArithmetic) {
  const Program p = program();
  const RooflineCost many = roofline_cost(p, p.body[0], described());
  EXPECT_EQ(many.bytes, 2 * (4096 * 32 + 32 * 64 + 4096 * 64));
  EXPECT_EQ(many.flops, 2.0 * 4096 * 32 * 64);
  EXPECT_TRUE(many.is_memory_bound);
  EXPECT_DOUBLE_EQ(many.seconds, static_cast<double>(many.bytes) / 1e11);
  Cluster slow = described();
  slow.peak_flops_per_second["bf16"] = 1e11;
  const RooflineCost bound = roofline_cost(p, p.body[0], slow);
  EXPECT_FALSE(bound.is_memory_bound);
  EXPECT_DOUBLE_EQ(bound.seconds, bound.flops / 1e11);
  const RooflineCost sum = roofline_cost(p, p.body[2], described());
  EXPECT_EQ(sum.bytes, 12000) << "reads both, writes one";
  EXPECT_EQ(sum.flops, 0.0);
}

TEST(RooflineText, HasALineAnInstructionAndSumsByKernel) {
  const std::string text = roofline_text(program(), described());
  EXPECT_THAT(text, HasSubstr("# on a device of cluster described, by nameplate: 100 GB/s, 10 TFLOP/s in bf16\n"));
  EXPECT_THAT(text, Not(HasSubstr("in f32"))) << "nothing computes in it";
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 2U + 3U + 2U + 3U) << text;
  EXPECT_THAT(lines[2], testing::ContainsRegex("^ +0 forward +linear_forward bf16 +790528 +0.017 +7.91  memory +fc$"));
  EXPECT_THAT(lines[4], testing::ContainsRegex("^ +2 forward +accumulate f32 +12000 +0.000 +0.12  memory +sum$"));
  // 790528 bytes of the first and 4288 of the second; the longest first, all of them last.
  EXPECT_THAT(lines[7], testing::ContainsRegex("^linear_forward bf16 +2 +794816 +0.017 +7.95 +98.51$"));
  EXPECT_THAT(lines[8], testing::ContainsRegex("^accumulate f32 +1 +12000 +0.000 +0.12 +1.49$"));
  EXPECT_THAT(lines[9], testing::ContainsRegex("^all kernels +3 +806816 +0.017 +8.07 +100.00$"));
}

TEST(RooflineText, CollectivesHaveWhatTheySend) {
  Program p = program();
  p.body.push_back({.collective = Collective::all_reduce,
                    .group = 0,
                    .stream = 1,
                    .name = "gradients",
                    .inputs = {{3, 0, 1000}},
                    .outputs = {{4, 0, 1000}}});
  const std::string text = roofline_text(p, described());
  EXPECT_THAT(text, testing::ContainsRegex("3 forward +all_reduce +4000 +link +gradients"));
  EXPECT_THAT(text, testing::ContainsRegex("collectives, sent +1 +4000\n$"));
}

TEST(RooflineText, ARateThatTheClusterLacksIsNamed) {
  Cluster cluster = described();
  cluster.peak_flops_per_second.erase("bf16");
  EXPECT_THAT([&] { roofline_text(program(), cluster); },
              ThrowsMessage<UserError>(HasSubstr("peak_flops_per_second.bf16 is missing")));
  cluster = described();
  cluster.memory_bandwidth_bytes_per_second = 0.0;
  EXPECT_THAT([&] { roofline_text(program(), cluster); },
              ThrowsMessage<UserError>(HasSubstr("memory_bandwidth_bytes_per_second is missing")));
}

}  // namespace
}  // namespace strata::test_roofline
