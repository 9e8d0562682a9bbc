/// @file
/// verify over all ranks: what would hang or corrupt a run is named before it starts. That these tests end at all is
/// part of what they show.

#include <gmock/gmock.h>

#include "handmade_program.hpp"

namespace strata::test_program_rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// One rank's list of communication over the group "all" (every rank) and "pair" (ranks 0 and 1).
struct Rank {
  explicit Rank(int rank, int num_ranks) : draft(rank, num_ranks) {
    std::vector<int> everyone;
    for (int r = 0; r < num_ranks; ++r) everyone.push_back(r);
    all = draft.group("all", everyone);
    if (num_ranks > 1 && rank < 2) pair = draft.group("pair", {0, 1});
    big = draft.buffer("big", 64, true);
    small = draft.buffer("small", 16, true);
    half = draft.buffer("half", 128, true, DType::bf16);
    assign_addresses(draft.program);
  }
  Rank& reduce(int group, int buffer, const std::string& name = "reduce") {
    draft.collective(Collective::all_reduce, group, buffer, name);
    return *this;
  }
  Rank& message(Collective kind, int peer, const std::string& name = "message") {
    draft.collective(kind, all, small, name, peer);
    return *this;
  }
  Rank& send(int peer) { return message(Collective::send, peer); }
  Rank& recv(int peer) { return message(Collective::recv, peer); }

  Handmade draft;
  int all = -1, pair = -1, big = -1, small = -1, half = -1;
};

std::vector<Rank> ranks(int num_ranks) {
  std::vector<Rank> result;
  for (int r = 0; r < num_ranks; ++r) result.emplace_back(r, num_ranks);
  return result;
}

std::string complaint_of(const std::vector<Rank>& all) {
  std::vector<Program> programs;
  for (const Rank& rank : all) programs.push_back(rank.draft.program);
  return complaint(programs);
}

TEST(Rendezvous, AcceptsEqualLists) {
  for (const int num_ranks : {1, 2, 3, 5}) {
    std::vector<Rank> r = ranks(num_ranks);
    for (Rank& rank : r) rank.reduce(rank.all, rank.big).reduce(rank.all, rank.small);
    EXPECT_EQ(complaint_of(r), "") << num_ranks;
  }
}

TEST(Rendezvous, ASizeThatDiffers) {
  std::vector<Rank> r = ranks(3);
  r[0].reduce(0, r[0].big);
  r[1].reduce(0, r[1].big);
  r[2].reduce(0, r[2].small, "wrong");
  EXPECT_THAT(complaint_of(r), AllOf(HasSubstr("mismatched collectives in group all"), HasSubstr("rank 0 body #0"),
                                     HasSubstr("(64 f32)"), HasSubstr("rank 2 body #0 all_reduce of wrong (16 f32)")));
}

TEST(Rendezvous, EqualBytesOfAnotherDtype) {
  std::vector<Rank> r = ranks(2);
  r[0].reduce(0, r[0].big);
  r[1].reduce(0, r[1].half);
  ASSERT_EQ(r[0].draft.program.buffers[0].size_bytes(), r[1].draft.program.buffers[2].size_bytes());
  EXPECT_THAT(complaint_of(r), AllOf(HasSubstr("mismatched"), HasSubstr("(64 f32)"), HasSubstr("(128 bf16)")));
}

TEST(Rendezvous, AnotherKindReductionOrRoot) {
  std::vector<Rank> kind = ranks(2);
  kind[0].reduce(0, kind[0].big);
  kind[1].draft.collective(Collective::broadcast, 0, kind[1].big, "other");
  EXPECT_THAT(complaint_of(kind), AllOf(HasSubstr("mismatched"), HasSubstr("rank 1 body #0 broadcast of other")));

  std::vector<Rank> reduction = ranks(2);
  for (Rank& rank : reduction) rank.reduce(0, rank.big);
  EXPECT_EQ(complaint_of(reduction), "");
  reduction[1].draft.program.body[0].reduction = Reduction::max;
  EXPECT_THAT(complaint_of(reduction), HasSubstr("mismatched"));

  std::vector<Rank> root = ranks(2);
  for (Rank& rank : root) rank.draft.collective(Collective::broadcast, 0, rank.big, "weights", 1);
  EXPECT_EQ(complaint_of(root), "");
  root[1].draft.program.body[0].root = 0;
  EXPECT_THAT(complaint_of(root), HasSubstr("mismatched"));

  std::vector<Rank> sums = ranks(2);
  for (Rank& rank : sums) rank.draft.collective(Collective::reduce, 0, rank.big, "weights", 1);
  EXPECT_EQ(complaint_of(sums), "");
  sums[1].draft.program.body[0].reduction = Reduction::max;
  EXPECT_THAT(complaint_of(sums), HasSubstr("mismatched"));
  sums[1].draft.program.body[0].reduction = Reduction::sum;
  sums[1].draft.program.body[0].root = 0;
  EXPECT_THAT(complaint_of(sums), HasSubstr("mismatched"));
}

TEST(Rendezvous, OtherTensorsThatGoTogether) {
  const auto two = [](Rank& rank, std::vector<int> roots, std::vector<Operand> tensors) {
    Instruction& in = rank.draft.collective(Collective::broadcast, 0, rank.big, "weights");
    in.inputs = in.outputs = std::move(tensors);
    in.roots = std::move(roots);
  };
  const std::vector<Operand> tensors = {{0, 0, 64}, {1, 0, 16}};
  std::vector<Rank> equal = ranks(2);
  for (Rank& rank : equal) two(rank, {1, 0}, tensors);
  EXPECT_EQ(complaint_of(equal), "");

  std::vector<Rank> roots = ranks(2);
  two(roots[0], {1, 0}, tensors);
  two(roots[1], {0, 1}, tensors);
  EXPECT_THAT(complaint_of(roots), AllOf(HasSubstr("mismatched"), HasSubstr("(64 + 16 f32)")));

  std::vector<Rank> sizes = ranks(2);
  two(sizes[0], {1, 0}, tensors);
  two(sizes[1], {1, 0}, {{0, 0, 64}, {1, 0, 15}});
  EXPECT_THAT(complaint_of(sizes), AllOf(HasSubstr("(64 + 16 f32)"), HasSubstr("(64 + 15 f32)")));
}

TEST(Rendezvous, AnotherOrder) {
  std::vector<Rank> r = ranks(2);
  r[0].reduce(0, r[0].big, "first").reduce(0, r[0].small, "second");
  r[1].reduce(0, r[1].small, "second").reduce(0, r[1].big, "first");
  EXPECT_THAT(complaint_of(r), AllOf(HasSubstr("mismatched"), HasSubstr("rank 0 body #0 all_reduce of first"),
                                     HasSubstr("rank 1 body #0 all_reduce of second")));
}

TEST(Rendezvous, ACollectiveThatOneMemberLeavesOut) {
  std::vector<Rank> r = ranks(3);
  for (const int rank : {0, 2}) r[static_cast<std::size_t>(rank)].reduce(0, 0, "lonely");
  EXPECT_THAT(complaint_of(r),
              AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 on communication: body #0"),
                    HasSubstr("rank 2 on communication: body #0 all_reduce of lonely"), Not(HasSubstr("rank 1 on"))));
}

TEST(Rendezvous, CollectivesOfTwoGroupsThatCross) {
  std::vector<Rank> r = ranks(2);
  r[0].reduce(r[0].all, 0, "of all").reduce(r[0].pair, 0, "of the pair");
  r[1].reduce(r[1].pair, 0, "of the pair").reduce(r[1].all, 0, "of all");
  EXPECT_THAT(complaint_of(r),
              AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 on communication: body #0 all_reduce of of all"),
                    HasSubstr("rank 1 on communication: body #0 all_reduce of of the pair")));
}

TEST(Rendezvous, SendsThatNobodyBuffers) {
  std::vector<Rank> both_send = ranks(2);
  both_send[0].send(1).recv(1);
  both_send[1].send(0).recv(0);
  EXPECT_THAT(complaint_of(both_send), AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 on communication: body #0 send"),
                                             HasSubstr("rank 1 on communication: body #0 send")));
  std::vector<Rank> in_turn = ranks(2);
  in_turn[0].send(1).recv(1);
  in_turn[1].recv(0).send(0);
  EXPECT_EQ(complaint_of(in_turn), "");
}

TEST(Rendezvous, ARingOfSends) {
  std::vector<Rank> ring = ranks(4);
  for (int r = 0; r < 4; ++r) ring[static_cast<std::size_t>(r)].send((r + 1) % 4).recv((r + 3) % 4);
  EXPECT_THAT(complaint_of(ring), AllOf(HasSubstr("deadlock"), HasSubstr("rank 3 on communication: body #0 send")));
  std::vector<Rank> coloured = ranks(4);
  for (int r = 0; r < 4; ++r) {
    Rank& rank = coloured[static_cast<std::size_t>(r)];
    if (r % 2 == 0) {
      rank.send((r + 1) % 4).recv((r + 3) % 4);
    } else {
      rank.recv((r + 3) % 4).send((r + 1) % 4);
    }
  }
  EXPECT_EQ(complaint_of(coloured), "");
}

TEST(Rendezvous, ASendMeetsOnlyTheReceiveOfItsPeer) {
  std::vector<Rank> r = ranks(3);
  r[0].send(1);
  r[1].recv(2);
  EXPECT_THAT(complaint_of(r), AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 on communication: body #0 send"),
                                     HasSubstr("rank 1 on communication: body #0 recv")));
  // The one it is for may come later.
  std::vector<Rank> later = ranks(3);
  later[0].send(1);
  later[1].recv(2).recv(0);
  later[2].send(1);
  EXPECT_EQ(complaint_of(later), "");
}

TEST(Rendezvous, AMessageOfAnotherSize) {
  std::vector<Rank> r = ranks(2);
  r[0].send(1);
  r[1].draft.collective(Collective::recv, 0, r[1].big, "large", 0);
  EXPECT_THAT(complaint_of(r), AllOf(HasSubstr("mismatched"), HasSubstr("(16 f32)"), HasSubstr("of large (64 f32)")));
}

TEST(Rendezvous, AMemberMayHaveMessagesToPassBeforeACollective) {
  std::vector<Rank> r = ranks(3);
  r[0].reduce(0, 0);
  r[1].send(2).reduce(0, 0);
  r[2].recv(1).reduce(0, 0);
  EXPECT_EQ(complaint_of(r), "");
}

TEST(Rendezvous, WaitsAndMessagesThatCloseACircle) {
  // Rank 0 receives on one stream only after its kernel, which waits for a collective that rank 1 reaches only after
  // its send.
  std::vector<Rank> r = ranks(2);
  r[0].recv(1).reduce(r[0].pair, 0, "closes");
  r[0].draft.kernel(compute, -1, 2, "opens").waits = {{1, 0}};
  r[1].send(0).reduce(r[1].pair, 0, "closes");
  EXPECT_EQ(complaint_of(r), "");
  std::vector<Rank> circle = ranks(2);
  circle[0].reduce(circle[0].pair, 0, "closes").recv(1);
  circle[0].draft.kernel(compute, -1, 2, "behind").waits = {{1, 0}};
  circle[1].send(0).reduce(circle[1].pair, 0, "closes");
  EXPECT_THAT(complaint_of(circle),
              AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 on communication: body #0 all_reduce of closes"),
                    HasSubstr("rank 0 on compute: body #2 fill of behind"),
                    HasSubstr("rank 1 on communication: body #0 send")));
}

TEST(Rendezvous, RanksAndGroupsAgree) {
  std::vector<Rank> numbered = ranks(2);
  numbered[1].draft.program.rank = 0;
  EXPECT_THAT(complaint_of(numbered), HasSubstr("program 1 of 2 says it is rank 0 of 2"));
  std::vector<Rank> counted = ranks(2);
  counted[0].draft.program.num_ranks = 3;
  EXPECT_THAT(complaint_of(counted), HasSubstr("program 0 of 2 says it is rank 0 of 3"));
  std::vector<Rank> unknown = ranks(2);
  unknown[1].draft.program.groups[0].ranks = {1, 0};
  EXPECT_THAT(complaint_of(unknown), AllOf(HasSubstr("rank 0 has group all = [0, 1]"), HasSubstr("rank 1 has not")));
  std::vector<Rank> outside = ranks(2);
  outside[0].draft.program.groups[0].ranks = {0, 7};
  EXPECT_THAT(complaint_of(outside), HasSubstr("rank 0: group all = [0, 7] in a world of 2"));
}

}  // namespace
}  // namespace strata::test_program_rendezvous
