/// @file
/// Which communicators Programs need, in one order on all ranks.

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "exec/device/communicator_list.hpp"

namespace strata::test_communicator_list {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Rank 0 and 1 send to each other and sum; rank 1 and 2 gather.
Program program_of(int rank) {
  Program program{.rank = rank, .num_ranks = 3};
  program.buffers = {{.name = "x", .num_elements = 12, .offset_bytes = 128},
                     {.name = "y", .num_elements = 12, .offset_bytes = 256}};
  const Group pair{.name = "pair", .ranks = {1, 0}};
  const Group late{.name = "late", .ranks = {1, 2}};
  const auto add = [&](Collective kind, int group, int root, std::int64_t in_begin, std::int64_t in_count) {
    Instruction in{.collective = kind, .group = group, .root = root};
    if (kind != Collective::recv) in.inputs = {{.buffer = 0, .begin = in_begin, .num_elements = in_count}};
    if (kind != Collective::send) in.outputs = {{.buffer = kind == Collective::recv ? 1 : 0, .num_elements = 12}};
    program.body.push_back(in);
  };
  if (rank < 2) {
    program.groups.push_back(pair);
    const int other = rank == 0 ? 0 : 1;  // index in the group
    add(Collective::send, 0, other, 0, 12);
    add(Collective::recv, 0, other, 0, 12);
    add(Collective::all_reduce, 0, 0, 0, 12);
  }
  if (rank > 0) {
    program.groups.push_back(late);
    add(Collective::all_gather, rank == 1 ? 1 : 0, 0, rank == 1 ? 0 : 6, 6);
  }
  return program;
}

std::vector<std::string> texts() {
  std::vector<std::string> result;
  for (int rank = 0; rank < 3; ++rank) result.push_back(to_text(communicators_of(program_of(rank))));
  return result;
}

TEST(CommunicatorList, HasAGroupsCollectivesAndEachDirectionOfItsMessages) {
  std::vector<CommunicatorKey> keys;
  for (const CommunicatorUse& use : communicators_of(program_of(0))) keys.push_back(use.key);
  EXPECT_THAT(keys, ElementsAre(CommunicatorKey{{0, 1}, "pair", true}, CommunicatorKey{{1, 0}, "pair", false},
                                CommunicatorKey{{1, 0}, "pair", true}));
}

TEST(CommunicatorList, IsEqualOnAllRanks) {
  std::vector<CommunicatorKey> keys;
  for (const AgreedCommunicator& agreed : agree(texts())) keys.push_back(agreed.key);
  EXPECT_THAT(keys, ElementsAre(CommunicatorKey{{0, 1}, "pair", true}, CommunicatorKey{{1, 0}, "pair", false},
                                CommunicatorKey{{1, 0}, "pair", true}, CommunicatorKey{{1, 2}, "late", false}));
}

TEST(CommunicatorList, KnowsWhereOperandsLieAlike) {
  const auto alike = [](const std::vector<std::string>& of_ranks) {
    std::vector<bool> result;
    for (const AgreedCommunicator& agreed : agree(of_ranks)) result.push_back(agreed.equal_addresses);
    return result;
  };
  // A message leaves one buffer and comes to another; own chunks of one tensor lie side by side by their nature.
  EXPECT_THAT(alike(texts()), ElementsAre(false, true, false, true));
  std::vector<std::string> moved = texts();
  Program other = program_of(0);
  other.buffers[0].offset_bytes = 512;
  moved[0] = to_text(communicators_of(other));
  EXPECT_THAT(alike(moved), ElementsAre(false, false, false, true));
}

TEST(CommunicatorList, NamesAMemberThatDoesNotCome) {
  std::vector<std::string> incomplete = texts();
  incomplete[2].clear();
  try {
    agree(incomplete);
    FAIL() << "accepted";
  } catch (const InternalError& e) {
    EXPECT_THAT(e.what(), HasSubstr("group late of ranks 1, 2: rank 2 has no collective in it"));
  }
}

}  // namespace
}  // namespace strata::test_communicator_list
