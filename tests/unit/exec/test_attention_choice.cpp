/// @file
/// Which attention a GPU runs, and the memory that is planned for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "exec/device/attention_choice.hpp"
#include "exec/device/workspace.hpp"
#include "support/refusal.hpp"

namespace strata::cuda::test_attention_choice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr AttentionDims served{
    .batch = 2, .seq = 77, .num_heads = 4, .num_kv_heads = 4, .head_dim = 64, .dtype = DType::bf16};

Numerics attention(AttentionKernels kernels, bool deterministic = false) {
  return {.deterministic = deterministic, .attention = kernels};
}

/// One attention and its gradient.
Program program_of(const AttentionDims& d) {
  const std::int64_t out = d.batch * d.seq * d.num_heads * d.head_dim;
  const std::int64_t in = d.batch * d.seq * (d.num_heads + 2 * d.num_kv_heads) * d.head_dim;
  Program program;
  program.streams = {"compute"};
  program.buffers = {{.name = "qkv", .num_elements = in, .dtype = d.dtype},
                     {.name = "y", .num_elements = out, .dtype = d.dtype},
                     {.name = "statistics", .num_elements = d.batch * d.num_heads * d.seq, .dtype = DType::f32}};
  const Operand qkv{.buffer = 0, .begin = 0, .num_elements = in};
  const Operand y{.buffer = 1, .begin = 0, .num_elements = out};
  const Operand statistics{.buffer = 2, .begin = 0, .num_elements = d.batch * d.num_heads * d.seq};
  const Attributes attributes = {{"samples", d.batch},         {"first_sample", std::int64_t{0}},
                                 {"sequence", d.seq},          {"heads", d.num_heads},
                                 {"kv_heads", d.num_kv_heads}, {"head_dim", d.head_dim},
                                 {"causal", std::int64_t{1}},  {"dropout", static_cast<double>(d.dropout_probability)}};
  Instruction forward;
  forward.kernel = Kernel::attention_forward;
  forward.attributes = attributes;
  forward.inputs = {qkv};
  forward.outputs = {y, statistics};
  Instruction backward;
  backward.kernel = Kernel::attention_backward;
  backward.attributes = attributes;
  backward.inputs = {y, qkv, y, statistics};
  backward.outputs = {qkv};
  program.body = {forward, backward};
  return program;
}

TEST(AttentionChoice, IsCudnnsWhereItServes) {
  using enum AttentionKernels;
  EXPECT_TRUE(uses_cudnn_attention(served, attention(automatic)));
  EXPECT_TRUE(uses_cudnn_attention(served, attention(cudnn)));
  EXPECT_FALSE(uses_cudnn_attention(served, attention(strata)));
  EXPECT_EQ(attention_of(program_of(served), attention(automatic)), "cudnn");
  EXPECT_EQ(attention_of(program_of(served), attention(strata)), "strata");
  EXPECT_EQ(attention_of({}, attention(automatic)), "");
}

TEST(AttentionChoice, IsOursWhereItDoesNotAndRefusedWhereCudnnsIsAskedFor) {
  struct Case {
    std::string says;
    void (*change)(AttentionDims&);
  };
  for (const auto& [says, change] :
       {Case{"it is of bf16, and the activations are f32", [](AttentionDims& d) { d.dtype = DType::f32; }},
        Case{"a multiple of 8 up to 128 elements, and they have 20", [](AttentionDims& d) { d.head_dim = 20; }},
        Case{"a multiple of 8 up to 128 elements, and they have 136", [](AttentionDims& d) { d.head_dim = 136; }},
        Case{"2 positions or more, and they have 1", [](AttentionDims& d) { d.seq = 1; }}}) {
    AttentionDims d = served;
    change(d);
    EXPECT_THAT(cudnn_attention_condition(d), HasSubstr(says));
    EXPECT_FALSE(uses_cudnn_attention(d, attention(AttentionKernels::automatic)));
    EXPECT_EQ(attention_of(program_of(d), attention(AttentionKernels::automatic)), "strata");
    const Program program = program_of(d);
    EXPECT_THAT(words_of<Unsupported>(
                    [&] { workspace_bytes(program, program.body.front(), attention(AttentionKernels::cudnn)); }),
                AllOf(HasSubstr("cuda.attention = \"cudnn\""), HasSubstr(says)));
  }
}

TEST(AttentionChoice, MasksOfDropoutAreMadeAndReadTwice) {
  const Numerics automatic = attention(AttentionKernels::automatic);
  EXPECT_EQ(dropout_mask_traffic(program_of(served), automatic), 0);
  AttentionDims d = served;
  d.dropout_probability = 0.25F;
  const std::int64_t mask = dropout_mask_bytes(d);
  EXPECT_GE(mask, d.batch * d.num_heads * d.seq * d.seq * 2);
  EXPECT_EQ(dropout_mask_traffic(program_of(d), automatic), 4 * mask);
  EXPECT_EQ(dropout_mask_traffic(program_of(d), attention(AttentionKernels::strata)), 0) << "ours have none";
}

TEST(AttentionChoice, PlansTheWorkspaceOfWhatRuns) {
  const auto bytes = [](const AttentionDims& d, const Numerics& numerics, std::size_t instruction) {
    const Program program = program_of(d);
    return workspace_bytes(program, program.body.at(instruction), numerics);
  };
  // Statistics: 8 heads of 77 positions. cuDNN's other part has tiles of 64 queries by 128 keys.
  EXPECT_EQ(bytes(served, attention(AttentionKernels::strata), 0), 0);
  EXPECT_EQ(bytes(served, attention(AttentionKernels::strata), 1), 8 * 77 * 4);
  EXPECT_EQ(bytes(served, attention(AttentionKernels::cudnn), 0), 4096);
  constexpr std::int64_t statistics = 2560;  // 8 · 77 · 4, in pieces of 256
  EXPECT_EQ(bytes(served, attention(AttentionKernels::cudnn), 1),
            statistics + 8 * 77 * 64 * 4 + 4096 + 8 * 80 * 64 * 4);
  EXPECT_EQ(bytes(served, attention(AttentionKernels::cudnn, true), 1), statistics + 4096 + 8 * 128 * 128 * 2);
  AttentionDims dropping = served;
  dropping.dropout_probability = 0.25F;
  EXPECT_TRUE(uses_cudnn_attention(dropping, attention(AttentionKernels::automatic)));
  constexpr std::int64_t mask = 98'560;  // 8 · 77 rows of 80 values of 2 bytes, which is a multiple of 256
  EXPECT_EQ(bytes(dropping, attention(AttentionKernels::strata), 0), 0);
  for (const std::size_t instruction : {0U, 1U}) {
    EXPECT_EQ(bytes(dropping, attention(AttentionKernels::cudnn), instruction),
              mask + bytes(served, attention(AttentionKernels::cudnn), instruction));
  }
  AttentionDims grouped = served;
  grouped.num_kv_heads = 2;
  EXPECT_EQ(bytes(grouped, attention(AttentionKernels::cudnn, true), 1),
            statistics + 4096 + 8 * 128 * 128 * 2 + 2 * 8 * 77 * 64 * 2);
}

}  // namespace
}  // namespace strata::cuda::test_attention_choice
