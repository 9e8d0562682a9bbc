#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "base/instruction_set.hpp"

namespace strata::test_instruction_set {
namespace {

TEST(InstructionSet, HasTheNamesThatTheVariableAccepts) {
  EXPECT_EQ(to_string(InstructionSet::avx2), "avx2");
  EXPECT_EQ(to_string(InstructionSet::avx512), "avx512");
  EXPECT_EQ(to_string(InstructionSet::avx512_bf16), "avx512_bf16");
  EXPECT_EQ(to_string(InstructionSet::amx), "amx");
}

TEST(InstructionSet, IsWhatTheProcessorHasOrLess) {
  EXPECT_EQ(instruction_set_is_limited(), std::getenv("STRATA_MAX_CPU_ISA") != nullptr);
  if (__builtin_cpu_supports("avx512f") == 0) {
    EXPECT_EQ(instruction_set(), InstructionSet::avx2);
  }
  if (__builtin_cpu_supports("avx512bf16") == 0) {
    EXPECT_LE(instruction_set(), InstructionSet::avx512);
  }
  if (const char* limit = std::getenv("STRATA_MAX_CPU_ISA"); limit != nullptr && std::string_view(limit) == "avx2") {
    EXPECT_EQ(instruction_set(), InstructionSet::avx2);
  }
}

}  // namespace
}  // namespace strata::test_instruction_set
