/// @file
/// What is counted from a Program: bytes sent against closed forms, live memory by hand, operations of kernels, and the
/// text of a Program that does not fit.

#include <gmock/gmock.h>

#include "handmade_program.hpp"

namespace strata::test_program_folds {
namespace {

using ::testing::HasSubstr;

/// Bytes that @p num_ranks ranks send in one collective of @p n elements.
std::vector<std::int64_t> sent(Collective kind, std::int64_t n, int num_ranks, DType dtype, int root = 0) {
  std::vector<std::int64_t> bytes;
  for (int rank = 0; rank < num_ranks; ++rank) {
    Handmade draft(rank, num_ranks);
    std::vector<int> members;
    for (int r = 0; r < num_ranks; ++r) members.push_back(num_ranks - 1 - r);  // group order is not rank order
    const int all = draft.group("all", members);
    const int full = draft.buffer("full", n, true, dtype);
    Instruction& in = draft.collective(kind, all, full, "x", root);
    const std::int64_t own = chunk_of(n, num_ranks, num_ranks - 1 - rank).size();
    if (kind == Collective::reduce_scatter) in.outputs = {{full, 0, own}};
    if (kind == Collective::all_gather) in.inputs = {{full, 0, own}};
    // Once a run, not once a step.
    draft.program.prologue = {in};
    const BytesByCollective counted = bytes_by_collective(draft.program);
    EXPECT_EQ(counted.total(), counted[kind]);
    bytes.push_back(counted[kind]);
  }
  return bytes;
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  std::int64_t total = 0;
  for (const std::int64_t value : values) total += value;
  return total;
}

TEST(BytesByCollective, SumsOverRanksAreTheClosedFormsWhateverDividesWhat) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int p : {1, 2, 3, 4, 7, 8}) {
      for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5}, std::int64_t{16},
                                   std::int64_t{1000}, std::int64_t{1} << 33}) {
        const std::int64_t g = size_of(dtype);
        EXPECT_EQ(sum(sent(Collective::all_reduce, n, p, dtype)), 2 * (p - 1) * n * g) << n << " over " << p;
        EXPECT_EQ(sum(sent(Collective::reduce_scatter, n, p, dtype)), (p - 1) * n * g) << n << " over " << p;
        EXPECT_EQ(sum(sent(Collective::all_gather, n, p, dtype)), (p - 1) * n * g) << n << " over " << p;
        EXPECT_EQ(sum(sent(Collective::broadcast, n, p, dtype, p - 1)), (p - 1) * n * g) << n << " over " << p;
        EXPECT_EQ(sum(sent(Collective::reduce, n, p, dtype, p - 1)), (p - 1) * n * g) << n << " over " << p;
        EXPECT_EQ(sum(sent(Collective::all_to_all, n * p, p, dtype)), (p - 1) * n * p * g) << n * p << " over " << p;
      }
    }
  }
}

TEST(BytesByCollective, EqualShareOfEveryRankWhereTheRanksDivide) {
  for (const int p : {2, 4, 8}) {
    const std::int64_t n = 24 * p;
    const auto share = [&](std::int64_t bytes) {
      return std::vector<std::int64_t>(static_cast<std::size_t>(p), bytes);
    };
    EXPECT_EQ(sent(Collective::all_reduce, n, p, DType::f32), share(2 * (p - 1) * 24 * 4));
    EXPECT_EQ(sent(Collective::reduce_scatter, n, p, DType::bf16), share((p - 1) * 24 * 2));
    EXPECT_EQ(sent(Collective::all_gather, n, p, DType::f32), share((p - 1) * 24 * 4));
  }
}

TEST(BytesByCollective, ABroadcastIsItsRootsAReduceTheOthersAndAMessageItsSenders) {
  // The group's order is turned round: index 2 of 3 is rank 0.
  EXPECT_EQ(sent(Collective::broadcast, 10, 3, DType::f32, 2), (std::vector<std::int64_t>{80, 0, 0}));
  EXPECT_EQ(sent(Collective::reduce, 10, 3, DType::f32, 2), (std::vector<std::int64_t>{0, 40, 40}));
  EXPECT_EQ(sent(Collective::send, 10, 2, DType::f32), (std::vector<std::int64_t>{40, 40}));
  EXPECT_EQ(sent(Collective::recv, 10, 2, DType::f32), (std::vector<std::int64_t>{0, 0}));
}

TEST(BytesByCollective, TensorsThatGoTogetherAreCountedOneByOne) {
  for (const int rank : {0, 1, 2}) {
    Handmade draft(rank, 3);
    const int all = draft.group("all", {0, 1, 2});
    const int first = draft.buffer("first", 10, true), second = draft.buffer("second", 7, true);
    Instruction& in = draft.collective(Collective::broadcast, all, first, "two");
    in.inputs = in.outputs = {{first, 0, 10}, {second, 0, 7}};
    in.roots = {1, 2};
    EXPECT_EQ(num_tensors(in), 2);
    EXPECT_EQ(full_bytes(draft.program, in), 4 * (10 + 7));
    EXPECT_EQ(priced_bytes(draft.program, in), 4 * (10 + 7));
    EXPECT_EQ(bytes_sent(draft.program, in), (std::vector<std::int64_t>{0, 80, 56})[static_cast<std::size_t>(rank)]);
    in.collective = Collective::all_gather;
    in.roots.clear();
    in.inputs = {{first, 0, chunk_of(10, 3, rank).size()}, {second, 0, chunk_of(7, 3, rank).size()}};
    const std::int64_t own = chunk_of(10, 3, rank).size() + chunk_of(7, 3, rank).size();
    EXPECT_EQ(bytes_sent(draft.program, in), 4 * 2 * own);
  }
}

TEST(MemoryPeak, ByHand) {
  Handmade draft;
  const int weight = draft.buffer("weight", 100, true, DType::f32, Category::parameter);
  draft.buffer("moment", 30, true, DType::f32, Category::optimizer);
  const int a = draft.buffer("a", 50);
  const int b = draft.buffer("b", 40, false, DType::bf16, Category::gradient);
  const int c = draft.buffer("c", 200, false, DType::u8, Category::workspace);
  draft.kernel(compute, -1, a, "0").allocs = {a};          // 520 + 200
  Instruction& middle = draft.kernel(compute, a, b, "1");  // + 80 + 200: the peak, before `a` and `c` die
  middle.workspace = c;
  middle.allocs = {b, c};
  middle.frees = {a, c};
  draft.kernel(compute, b, weight, "2").frees = {b};
  assign_addresses(draft.program);
  const MemoryPeak peak = memory_peak(draft.program);
  EXPECT_EQ(peak.total_bytes, 400 + 120 + 200 + 80 + 200);
  EXPECT_EQ(peak.instruction, 1);
  EXPECT_EQ(peak.bytes[static_cast<int>(Category::parameter)], 400);
  EXPECT_EQ(peak.bytes[static_cast<int>(Category::optimizer)], 120);
  EXPECT_EQ(peak.bytes[static_cast<int>(Category::activation)], 200);
  EXPECT_EQ(peak.bytes[static_cast<int>(Category::gradient)], 80);
  EXPECT_EQ(peak.bytes[static_cast<int>(Category::workspace)], 200);
  EXPECT_EQ(peak.bytes[static_cast<int>(Category::communication)], 0);
  EXPECT_GE(draft.program.arena_bytes, peak.total_bytes);
}

TEST(MemoryPeak, PersistentBuffersAlone) {
  Handmade draft;
  draft.buffer("weight", 3, true, DType::f32, Category::parameter);
  const MemoryPeak peak = memory_peak(draft.program);
  EXPECT_EQ(peak.total_bytes, 12);
  EXPECT_EQ(peak.instruction, -1);
}

/// 1 GiB of weights, then 1 GiB and 2 GiB beside each other.
Program large() {
  Handmade draft(3, 8);
  const std::int64_t gib = std::int64_t{1} << 30;
  draft.buffer("weight", gib / 4, true, DType::f32, Category::parameter);
  const int a = draft.buffer("a", gib / 4);
  const int b = draft.buffer("b", 2 * gib, false, DType::u8, Category::workspace);
  draft.kernel(compute, -1, a, "block[0].fits").allocs = {a};
  Instruction& exceeds = draft.kernel(compute, a, b, "block[1].exceeds");
  exceeds.allocs = {b};
  exceeds.frees = {a, b};
  exceeds.phase = Phase::backward;
  exceeds.micro_batch = 2;
  assign_addresses(draft.program);
  return draft.program;
}

std::string out_of_memory(const Program& program, std::int64_t capacity_bytes) {
  try {
    check_capacity(program, capacity_bytes);
  } catch (const OutOfMemory& error) {
    return error.what();
  }
  return "fits";
}

TEST(CheckCapacity, NamesTheOperatorAndBothSizes) {
  const Program program = large();
  EXPECT_EQ(out_of_memory(program, 3 * (std::int64_t{1} << 30)),
            "OOM at block[1].exceeds (backward, micro-batch 2): rank 3 needs 4.000 GiB of 3.000 GiB (4294967296 of "
            "3221225472 bytes); live at the peak in GiB: parameter 1.000, gradient 0.000, optimizer 0.000, activation "
            "1.000, workspace 2.000, communication 0.000");
}

TEST(CheckCapacity, NamesTheFirstThatDoesNotFit) {
  const Program program = large();
  EXPECT_THAT(out_of_memory(program, (std::int64_t{2} << 30) - 1), HasSubstr("OOM at block[0].fits (forward"));
  EXPECT_THAT(out_of_memory(program, std::int64_t{2} << 30), HasSubstr("OOM at block[1].exceeds"));
}

TEST(CheckCapacity, ToTheByteAndWithoutLimit) {
  const Program program = large();
  EXPECT_EQ(out_of_memory(program, program.arena_bytes), "fits");
  EXPECT_NE(out_of_memory(program, program.arena_bytes - 1), "fits");
  EXPECT_EQ(out_of_memory(program, 0), "fits");
}

TEST(CheckCapacity, StatesThatDoNotFitAreNamedAsSuch) {
  Handmade draft;
  draft.buffer("weight", 1000, true, DType::f32, Category::parameter);
  assign_addresses(draft.program);
  EXPECT_THAT(out_of_memory(draft.program, 3999), HasSubstr("OOM at the parameters and optimizer states: rank 0"));
}

TEST(Flops, OfKernelsByHand) {
  const Attributes linear = {{"rows", std::int64_t{3}}, {"in", std::int64_t{5}}, {"out", std::int64_t{7}}};
  for (const Kernel kernel : {Kernel::linear_forward, Kernel::linear_backward_input, Kernel::linear_backward_weight}) {
    EXPECT_EQ(flops({.kernel = kernel, .attributes = linear}), 2.0 * 3 * 5 * 7);
  }
  Attributes attention = {{"samples", std::int64_t{2}},
                          {"sequence", std::int64_t{10}},
                          {"heads", std::int64_t{3}},
                          {"head_dim", std::int64_t{4}},
                          {"causal", std::int64_t{0}}};
  // Scores and values: two products of 10 × 10 × 4 for each head of each sample.
  EXPECT_EQ(flops({.kernel = Kernel::attention_forward, .attributes = attention}), 2.0 * 3 * 2 * (2 * 10 * 10 * 4));
  EXPECT_EQ(flops({.kernel = Kernel::attention_backward, .attributes = attention}),
            2.0 * 2 * 3 * 2 * (2 * 10 * 10 * 4));
  attention.set("causal", 1);
  EXPECT_EQ(flops({.kernel = Kernel::attention_forward, .attributes = attention}), 0.5 * 2 * 3 * 2 * (2 * 10 * 10 * 4));
  // 7 × 9 pixels in strides of 2 with a border of 1: 4 × 5 outputs.
  const Attributes convolution = {{"samples", std::int64_t{2}}, {"in", std::int64_t{3}},
                                  {"out", std::int64_t{5}},     {"kernel", std::int64_t{3}},
                                  {"stride", std::int64_t{2}},  {"padding", std::int64_t{1}},
                                  {"height", std::int64_t{7}},  {"width", std::int64_t{9}}};
  EXPECT_EQ(flops({.kernel = Kernel::convolution_forward, .attributes = convolution}),
            2.0 * 2 * (4 * 5) * 5 * (3 * 3 * 3));
  EXPECT_EQ(flops({.collective = Collective::all_reduce}), 0.0);
}

TEST(Flops, OfAStepAreThoseOfTheBody) {
  const Attributes linear = {{"rows", std::int64_t{3}}, {"in", std::int64_t{5}}, {"out", std::int64_t{7}}};
  Program program;
  program.prologue.assign(5, {.kernel = Kernel::linear_forward, .attributes = linear});
  program.body.assign(2, {.kernel = Kernel::linear_forward, .attributes = linear});
  program.body.push_back({.kernel = Kernel::add, .attributes = {{"elements", std::int64_t{1000}}}});
  EXPECT_EQ(flops_per_step(program), 2 * 2.0 * 3 * 5 * 7);
}

}  // namespace
}  // namespace strata::test_program_folds
