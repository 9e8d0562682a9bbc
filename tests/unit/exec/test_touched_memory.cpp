/// @file
/// What a run is said to have touched, by the highest byte that is seen to be written.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "exec/touched_memory.hpp"
#include "ir/program/program.hpp"

namespace strata::test_touched_memory {
namespace {

Program with_last_buffer_of(DType dtype) {
  Program program;
  program.buffers = {{.name = "before", .num_elements = 4, .dtype = DType::f32, .offset_bytes = 0},
                     {.name = "last", .num_elements = 32 / size_of(dtype), .dtype = dtype, .offset_bytes = 16}};
  program.arena_bytes = 48;
  return program;
}

std::int64_t touched_where_written_to(const Program& program, std::int64_t written) {
  const TouchedMemory touched = touched_memory(program, [&](std::int64_t end) { return std::min(written, end); });
  EXPECT_EQ(touched.own_bytes, touched.total_bytes);
  return touched.total_bytes;
}

/// The last of its values may be those of the poison.
TEST(TouchedMemory, APacketIsWrittenWholeOrNot) {
  const Program program = with_last_buffer_of(DType::u8);
  EXPECT_EQ(touched_where_written_to(program, 47), 48);
  EXPECT_EQ(touched_where_written_to(program, 48), 48);
  EXPECT_EQ(touched_where_written_to(program, 16), 16);
}

TEST(TouchedMemory, OfNumbersAndOfWorkspacesNoMoreIsWrittenThanIsSeen) {
  EXPECT_EQ(touched_where_written_to(with_last_buffer_of(DType::f32), 44), 44);
  Program program = with_last_buffer_of(DType::u8);
  program.buffers.front().category = program.buffers.back().category = Category::workspace;
  EXPECT_EQ(touched_memory(program, [](std::int64_t end) { return std::min<std::int64_t>(20, end); }).total_bytes, 48)
      << "what a library was given";
  program.buffers.push_back({.name = "own", .num_elements = 16, .dtype = DType::f32, .offset_bytes = 0});
  EXPECT_EQ(touched_memory(program, [](std::int64_t end) { return std::min<std::int64_t>(20, end); }).own_bytes, 20);
}

/// The upper bytes of an address that a library keeps may be those of the poison.
TEST(TouchedMemory, TheLastWordOfAWorkspaceIsWrittenWholeOrNot) {
  Program program;
  program.buffers = {{.name = "own", .num_elements = 7, .dtype = DType::f32, .offset_bytes = 0}};
  program.arena_bytes = 64;
  const auto own_where_written_to = [&](std::int64_t written) {
    return touched_memory(program, [&](std::int64_t end) { return std::min(written, end); }).own_bytes;
  };
  EXPECT_EQ(own_where_written_to(27), 27) << "a number of which the last byte is missing was not written";
  program.buffers.push_back(
      {.name = "workspace", .num_elements = 64, .dtype = DType::u8, .category = Category::workspace});
  EXPECT_EQ(own_where_written_to(27), 28) << "a word that goes on above the Program's own bytes";
  EXPECT_EQ(own_where_written_to(24), 24);
  EXPECT_EQ(own_where_written_to(25), 28);
  EXPECT_EQ(own_where_written_to(17), 17) << "words below it show the high-water mark as it is";
}

}  // namespace
}  // namespace strata::test_touched_memory
