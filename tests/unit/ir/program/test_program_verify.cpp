/// @file
/// Every rule of verify broken on purpose: the message names the instruction. Text round trip of hand-made Programs,
/// and addresses that streams of their own pace share safely.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "ir/program/happens_before.hpp"
#include "ir/program/program.hpp"

namespace strata::test_program_verify {
namespace {

using testing::HasSubstr;

constexpr std::int64_t n = 100;

Operand whole(int buffer, std::int64_t elements = n) { return {buffer, 0, elements}; }

/// compute: fill x; copy x → y; communication: all_reduce y; compute: copy y → w.
Program small(int rank = 0, int ranks = 2) {
  Program program{.rank = rank, .num_ranks = ranks, .streams = {"compute", "communication"}};
  program.groups = {{"data", {}}};
  for (int r = 0; r < ranks; ++r) program.groups[0].ranks.push_back(r);
  program.buffers = {{.name = "x", .num_elements = n},
                     {.name = "y", .num_elements = n, .category = Category::gradient},
                     {.name = "w", .num_elements = n, .category = Category::parameter, .persistent = true}};
  program.body = {{.kernel = Kernel::fill,
                   .name = "a",
                   .outputs = {whole(0)},
                   .attributes = {{"elements", n}, {"value", 0.5}},
                   .allocs = {0}},
                  {.kernel = Kernel::copy,
                   .name = "b",
                   .inputs = {whole(0)},
                   .outputs = {whole(1)},
                   .attributes = {{"elements", n}},
                   .allocs = {1},
                   .frees = {0}},
                  {.kernel = Kernel::none,
                   .collective = Collective::all_reduce,
                   .group = 0,
                   .stream = 1,
                   .phase = Phase::reduce,
                   .name = "c",
                   .inputs = {whole(1)},
                   .outputs = {whole(1)},
                   .waits = {{1, 0}}},
                  {.kernel = Kernel::copy,
                   .name = "d",
                   .inputs = {whole(1)},
                   .outputs = {whole(2)},
                   .attributes = {{"elements", n}},
                   .waits = {{2, 0}},
                   .frees = {1}}};
  assign_addresses(program);
  return program;
}

std::string complaint(const Program& program) {
  try {
    verify(program);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "nothing to complain about";
}
std::string complaint(const std::vector<Program>& programs) {
  try {
    verify(programs);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "nothing to complain about";
}

TEST(VerifyProgram, AGoodOnePasses) {
  EXPECT_EQ(complaint(small()), "nothing to complain about");
  EXPECT_EQ(complaint(std::vector{small(0), small(1)}), "nothing to complain about");
}

TEST(VerifyProgram, TextRoundTrip) {
  Program program = small(1, 3);
  program.body[3].waits.push_back({2, 1});
  program.buffers[2].parameter = "layer.weight";
  program.buffers[2].parameter_begin = 17;
  program.body[3].step = -1;
  program.loss_buffer = 2;
  EXPECT_EQ(parse_program(to_text(program)), program);
}

TEST(VerifyProgram, ABrokenTextNamesItsLine) {
  std::string text = to_text(small());
  const std::size_t at = text.find("all_reduce");
  text.replace(at, 10, "all_reduze");
  try {
    parse_program(text);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("all_reduze"));
    EXPECT_THAT(error.what(), HasSubstr("line"));
  }
}

TEST(VerifyProgram, WordsThatNobodyReadsAreRefused) {
  std::string text = to_text(small());
  text.replace(text.find("persistent"), 10, "persistend");
  try {
    parse_program(text);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 7: unexpected `persistend`"));
  }
}

TEST(VerifyProgram, UseBeforeAllocation) {
  Program program = small();
  program.body[0].allocs.clear();
  EXPECT_THAT(complaint(program), HasSubstr("body #0 fill of a: x is used before it is allocated"));
}

TEST(VerifyProgram, UseAfterFree) {
  Program program = small();
  program.body[0].frees = {0};
  program.body[1].frees.clear();
  EXPECT_THAT(complaint(program),
              HasSubstr("body #1 copy of b: x is used before it is allocated or after it is freed"));
}

TEST(VerifyProgram, NeverFreed) {
  Program program = small();
  program.body[3].frees.clear();
  EXPECT_THAT(complaint(program), HasSubstr("body never frees y"));
}

TEST(VerifyProgram, AllocatedTwice) {
  Program program = small();
  program.body[1].allocs.push_back(0);
  EXPECT_THAT(complaint(program), HasSubstr("x is allocated twice"));
}

/// One address cannot be two, and an address that nobody gave is none.
TEST(VerifyProgram, AllocatedInTwoSectionsOrNone) {
  Program program = small();
  program.prologue = {program.body[0]};
  program.prologue[0].frees = {0};
  EXPECT_THAT(complaint(program), HasSubstr("body #0 fill of a: x is allocated twice"));
  program = small();
  program.buffers.push_back({.name = "z", .num_elements = n, .offset_bytes = 0});
  EXPECT_THAT(complaint(program), HasSubstr("nothing allocates z"));
}

TEST(VerifyProgram, ElementsOutsideOfABuffer) {
  Program program = small();
  program.body[1].inputs[0].num_elements = n + 1;
  EXPECT_THAT(complaint(program), HasSubstr("elements [0, 101) of x, which has 100"));
}

TEST(VerifyProgram, DanglingWait) {
  Program program = small();
  program.body[2].waits = {{3, 0}};
  EXPECT_THAT(complaint(program), HasSubstr("body #2 all_reduce of c: dangling wait for #3"));
}

TEST(VerifyProgram, AMissingWaitIsARace) {
  Program program = small();
  program.body[3].waits.clear();
  EXPECT_THAT(complaint(program), HasSubstr("body #3 copy of d: not ordered after #2"));
}

TEST(VerifyProgram, TwoLiveBuffersAtOneAddress) {
  Program program = small();
  program.buffers[1].offset_bytes = program.buffers[2].offset_bytes;
  program.body[3].waits.clear();
  EXPECT_THAT(complaint(program), HasSubstr("y and w are alive at one address"));
}

TEST(VerifyProgram, OutsideOfTheArena) {
  Program program = small();
  program.arena_bytes -= 1;
  EXPECT_THAT(complaint(program), HasSubstr("has no place in the arena"));
}

TEST(VerifyProgram, WrongOperandCount) {
  Program program = small();
  program.body[1].inputs.clear();
  EXPECT_THAT(complaint(program), HasSubstr("0 inputs where"));
}

TEST(VerifyProgram, AGroupWithoutThisRank) {
  Program program = small();
  program.groups[0].ranks = {1, 2};
  EXPECT_THAT(complaint(program), HasSubstr("this rank is not a member of the group"));
}

/// The sum of all ranks' y at rank 1 of 3 alone, which copies it to w; the others write w themselves.
Program reduced(int rank) {
  Program program = small(rank, 3);
  program.body[2].collective = Collective::reduce;
  program.body[2].root = 1;
  if (rank != 1) program.body[2].outputs.clear();
  return program;
}

TEST(VerifyProgram, AReduceHasAnOutputAtItsRootAlone) {
  EXPECT_EQ(complaint(std::vector{reduced(0), reduced(1), reduced(2)}), "nothing to complain about");
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(complaint(reduced(rank)), "nothing to complain about") << rank;
    EXPECT_EQ(parse_program(to_text(reduced(rank))), reduced(rank));
  }
  EXPECT_THAT(to_text(reduced(1)), HasSubstr("reduce sum group=data root=1 %1 -> %1 |"));
  EXPECT_THAT(to_text(reduced(2)), HasSubstr("reduce sum group=data root=1 %1 ->  |"));

  Program other = reduced(0);
  other.body[2].outputs = other.body[2].inputs;
  EXPECT_THAT(complaint(other), HasSubstr("body #2 reduce of c: 1 inputs and 1 outputs beside the root"));
  other = reduced(0);
  other.body[2].inputs.clear();
  other.body[2].outputs = {whole(1)};
  EXPECT_THAT(complaint(other), HasSubstr("0 inputs and 1 outputs beside the root; a reduce has an input"));
  other = reduced(1);
  other.body[2].outputs.clear();
  EXPECT_THAT(complaint(other), HasSubstr("1 inputs and 0 outputs at the root"));
  other = reduced(1);
  other.body[2].outputs[0].num_elements = n - 1;
  EXPECT_THAT(complaint(other), HasSubstr("reduces 100 f32 to 99 f32"));
  other = reduced(1);
  other.body[2].root = 3;
  EXPECT_THAT(complaint(other), HasSubstr("root or peer outside of the group"));
}

/// All ranks' parts of y, of which rank 0 has 1 element and rank 1 the other 3.
Program gathered_in_pieces(int rank) {
  Program program = small(rank, 2);
  Instruction& gather = program.body[2];
  const std::int64_t elements = program.buffers[1].num_elements;
  gather.collective = Collective::all_gather;
  gather.pieces = {.input = {}, .output = {0, 1, elements}, .longest = elements - 1};
  gather.inputs = {{1, rank == 0 ? 0 : 1, rank == 0 ? 1 : elements - 1}};
  gather.outputs = {whole(1)};
  return program;
}

TEST(VerifyProgram, PiecesMakeUpTheirTensor) {
  EXPECT_EQ(complaint(std::vector{gathered_in_pieces(0), gathered_in_pieces(1)}), "nothing to complain about");
  EXPECT_EQ(complaint(gathered_in_pieces(1)), "nothing to complain about");
  EXPECT_EQ(parse_program(to_text(gathered_in_pieces(1))), gathered_in_pieces(1));
  const auto broken = [](const auto& change) {
    Program program = gathered_in_pieces(1);
    change(program.body[2]);
    return complaint(program);
  };
  EXPECT_THAT(broken([](Instruction& in) { in.pieces.output.push_back(4); }), HasSubstr("of 2 members"));
  EXPECT_THAT(broken([](Instruction& in) { in.pieces.output.back() += 1; }), HasSubstr("input of"));
  EXPECT_THAT(broken([](Instruction& in) { in.inputs.front().num_elements -= 1; }), HasSubstr("input of"));
  EXPECT_THAT(broken([](Instruction& in) { in.pieces.longest = 1; }), HasSubstr("more elements than the longest, 1"));
  // Members must agree where the pieces are.
  Program other = gathered_in_pieces(1);
  other.body[2].pieces.output[1] = 2;
  other.body[2].inputs = {{1, 2, other.buffers[1].num_elements - 2}};
  EXPECT_THAT(complaint(std::vector{gathered_in_pieces(0), other}), HasSubstr("mismatched collectives in group data"));
}

TEST(VerifyProgram, WhatAReduceLeavesBesideItsRootIsNoResult) {
  Program program = reduced(0);
  // y's elements are defined by #1; those of z, into which it might have been reduced, by nobody.
  program.buffers.push_back({.name = "z", .num_elements = n});
  program.body[2].allocs = {3};
  program.body[3].inputs = {whole(3)};
  program.body[3].frees = {1, 3};
  assign_addresses(program);
  EXPECT_THAT(complaint(program), HasSubstr("body #3 copy of d: z is read before it is written"));
}

TEST(VerifyPrograms, SizesThatDoNotAgree) {
  Program other = small(1);
  other.body[2].inputs[0].num_elements = other.body[2].outputs[0].num_elements = n - 1;
  EXPECT_THAT(complaint(std::vector{small(0), other}), HasSubstr("mismatched collectives in group data"));
}

TEST(VerifyPrograms, KindsThatDoNotAgree) {
  Program other = small(1);
  other.body[2].collective = Collective::broadcast;
  EXPECT_THAT(complaint(std::vector{small(0), other}), HasSubstr("mismatched collectives in group data"));
}

TEST(VerifyPrograms, ARankThatNeverComes) {
  Program other = small(1);
  other.body.erase(other.body.begin() + 2, other.body.end());
  other.body[1].frees.push_back(1);
  const std::string stuck = complaint(std::vector{small(0), other});
  EXPECT_THAT(stuck, HasSubstr("rank 0 on communication: body #2 all_reduce of c"));
}

/// Both ranks send first and receive afterwards on one stream: under rendezvous nobody moves.
TEST(VerifyPrograms, CrossingSendsAreADeadlockNamedNotHung) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    Program program{.rank = rank, .num_ranks = 2, .streams = {"compute"}};
    program.groups = {{"pair", {0, 1}}};
    program.buffers = {{.name = "out", .num_elements = n, .persistent = true},
                       {.name = "in", .num_elements = n, .persistent = true}};
    program.body = {{.collective = Collective::send, .group = 0, .root = 1 - rank, .name = "s", .inputs = {whole(0)}},
                    {.collective = Collective::recv, .group = 0, .root = 1 - rank, .name = "r", .outputs = {whole(1)}}};
    assign_addresses(program);
    programs.push_back(program);
  }
  const std::string stuck = complaint(programs);
  EXPECT_THAT(stuck, HasSubstr("rank 0 on compute: body #0 send of s"));
  EXPECT_THAT(stuck, HasSubstr("rank 1 on compute: body #0 send of s"));
  std::swap(programs[1].body[0], programs[1].body[1]);
  EXPECT_EQ(complaint(programs), "nothing to complain about");
}

/// They would be matched in the order in which they happen to be posted.
TEST(VerifyProgram, MessagesOfAGroupToOneRankAreOnOneStream) {
  Program program{.rank = 0, .num_ranks = 2, .streams = {"compute", "first", "second"}};
  program.groups = {{"pair", {0, 1}}, {"other", {0, 1}}};
  program.buffers = {{.name = "x", .num_elements = n, .persistent = true},
                     {.name = "y", .num_elements = n, .persistent = true}};
  for (const int buffer : {0, 1}) {
    program.prologue.push_back({.kernel = Kernel::fill,
                                .name = "fill",
                                .outputs = {whole(buffer)},
                                .attributes = {{"elements", n}, {"value", 0.5}}});
  }
  program.body = {
      {.collective = Collective::send, .group = 0, .root = 1, .stream = 1, .name = "a", .inputs = {whole(0)}},
      {.collective = Collective::send, .group = 0, .root = 1, .stream = 2, .name = "b", .inputs = {whole(1)}}};
  assign_addresses(program);
  EXPECT_THAT(complaint(program), HasSubstr("body #1 send of b: messages of group pair with member 1 are on stream "
                                            "first too"));
  program.body[1].group = 1;
  EXPECT_EQ(complaint(program), "nothing to complain about");
  program.body[1] = {
      .collective = Collective::recv, .group = 0, .root = 1, .stream = 2, .name = "b", .outputs = {whole(1)}};
  EXPECT_EQ(complaint(program), "nothing to complain about");
}

TEST(HappensBefore, FollowsStreamsAndWaits) {
  const Program program = small();
  const HappensBefore order(program.body, 2);
  EXPECT_TRUE(order.ordered(0, 1));
  EXPECT_TRUE(order.ordered(1, 2));
  EXPECT_TRUE(order.ordered(0, 2));
  EXPECT_TRUE(order.ordered(2, 3));
  Program loose = small();
  loose.body[3].waits.clear();
  const HappensBefore without(loose.body, 2);
  EXPECT_FALSE(without.ordered(2, 3));
}

TEST(Addresses, AFreedPlaceGoesOnlyToWhoComesAfterAllItsUsers) {
  // x is read by the communication stream; z may take its place only if it waits for that.
  const auto place_of_z = [](bool waits) {
    Program program{.num_ranks = 2, .streams = {"compute", "communication"}};
    program.groups = {{"data", {0, 1}}};
    program.buffers = {{.name = "x", .num_elements = n}, {.name = "z", .num_elements = n}};
    program.body = {{.kernel = Kernel::fill, .name = "a", .outputs = {whole(0)}, .allocs = {0}},
                    {.collective = Collective::all_reduce,
                     .group = 0,
                     .stream = 1,
                     .name = "c",
                     .inputs = {whole(0)},
                     .outputs = {whole(0)},
                     .waits = {{0, 0}},
                     .frees = {0}},
                    {.kernel = Kernel::fill, .name = "d", .outputs = {whole(1)}, .allocs = {1}, .frees = {1}}};
    if (waits) program.body[2].waits = {{1, 0}};
    assign_addresses(program);
    EXPECT_NO_THROW(verify(program));
    return program.buffers[1].offset_bytes - program.buffers[0].offset_bytes;
  };
  EXPECT_EQ(place_of_z(true), 0);
  EXPECT_NE(place_of_z(false), 0);
}

TEST(Folds, MemoryPeakAndBytes) {
  const Program program = small();
  const MemoryPeak peak = memory_peak(program);
  EXPECT_EQ(peak.total_bytes, 3 * 4 * n);
  EXPECT_EQ(peak.bytes[static_cast<int>(Category::parameter)], 4 * n);
  EXPECT_EQ(peak.instruction, 1);
  EXPECT_EQ(bytes_by_collective(program)[Collective::all_reduce], 2 * 1 * 4 * n / 2);
  EXPECT_EQ(bytes_by_collective(program).total(), 4 * n);
}

}  // namespace
}  // namespace strata::test_program_verify
