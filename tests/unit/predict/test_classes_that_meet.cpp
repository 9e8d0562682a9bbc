/// @file
/// Which classes hold each other up: by groups, by messages, by the NICs of a node, and by others between them.

#include <gmock/gmock.h>

#include <cstddef>
#include <vector>

#include "predict/classes_that_meet.hpp"

namespace strata::predict::test_classes_that_meet {
namespace {

using ::testing::ElementsAre;

/// Every rank a class of its own.
LoweredJob job_of(int num_ranks) {
  LoweredJob job;
  for (int rank = 0; rank < num_ranks; ++rank) {
    job.programs.push_back({.rank = rank, .num_ranks = num_ranks});
    job.class_of_rank.push_back(rank);
  }
  return job;
}

/// On each rank of @p members, which are all of them or, of a message, sender and receiver.
void exchange(LoweredJob& job, Collective kind, const std::vector<int>& members) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    Program& program = job.programs[static_cast<std::size_t>(members[i])];
    const bool receives = kind == Collective::send && i == 1;
    program.groups.push_back({.name = "group", .ranks = members});
    program.body.push_back({.collective = receives ? Collective::recv : kind,
                            .group = static_cast<int>(program.groups.size()) - 1,
                            .root = receives || kind != Collective::send ? 0 : 1});
  }
}

std::vector<std::size_t> met(const LoweredJob& job, int ranks_per_node) {
  std::vector<std::vector<const Instruction*>> all;
  for (const Program& program : job.programs) {
    std::vector<const Instruction*>& of_class = all.emplace_back();
    for (const Instruction& in : program.body) of_class.push_back(&in);
  }
  return classes_that_meet(job, ranks_per_node, all);
}

TEST(ClassesThatMeet, NobodyMeetsWithoutExchanges) {
  LoweredJob job = job_of(3);
  job.programs[0].body.push_back({.kernel = Kernel::linear_forward});
  EXPECT_THAT(met(job, 3), ElementsAre(0, 1, 2));
}

TEST(ClassesThatMeet, ByGroupsAndMessagesAndWhoIsBetweenThem) {
  LoweredJob job = job_of(6);
  exchange(job, Collective::all_reduce, {0, 3});
  exchange(job, Collective::send, {4, 1});
  EXPECT_THAT(met(job, 6), ElementsAre(0, 1, 2, 0, 1, 5));
  exchange(job, Collective::send, {3, 4});
  EXPECT_THAT(met(job, 6), ElementsAre(0, 0, 2, 0, 0, 5));
}

TEST(ClassesThatMeet, MessagesOfAGroupJoinTheirTwoEndsAlone) {
  LoweredJob job = job_of(3);
  exchange(job, Collective::send, {0, 1});
  job.programs[0].groups[0].ranks = job.programs[1].groups[0].ranks = {0, 1, 2};
  EXPECT_THAT(met(job, 3), ElementsAre(0, 0, 2));
}

TEST(ClassesThatMeet, ByTheNicsOfANodeInTheSameDirection) {
  LoweredJob job = job_of(8);  // two nodes
  exchange(job, Collective::send, {0, 4});
  exchange(job, Collective::send, {5, 1});
  EXPECT_THAT(met(job, 4), ElementsAre(0, 1, 2, 3, 0, 1, 6, 7)) << "there and back at the same time";
  exchange(job, Collective::send, {2, 6});
  EXPECT_THAT(met(job, 4), ElementsAre(0, 1, 0, 3, 0, 1, 0, 7));
  exchange(job, Collective::all_gather, {3, 7});
  EXPECT_THAT(met(job, 4), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0)) << "a collective goes both ways";
}

TEST(ClassesThatMeet, ExchangesInsideANodeUseNoNic) {
  LoweredJob job = job_of(4);
  exchange(job, Collective::all_reduce, {0, 1});
  exchange(job, Collective::all_reduce, {2, 3});
  EXPECT_THAT(met(job, 4), ElementsAre(0, 0, 2, 2));
}

/// Class 0 is ranks 0 and 2, class 1 is ranks 1 and 3; ranks 2 and 3 are looked at through them.
TEST(ClassesThatMeet, RanksOfAClassAreOne) {
  LoweredJob job = job_of(4);
  exchange(job, Collective::all_reduce, {0, 3});
  job.programs.resize(2);
  job.class_of_rank = {0, 1, 0, 1};
  EXPECT_THAT(met(job, 4), ElementsAre(0, 0));
}

}  // namespace
}  // namespace strata::predict::test_classes_that_meet
