/// @file
/// Which groups of all ranks' Programs a profile measures, and which at once.

#include <gmock/gmock.h>

#include <vector>

#include "profile/collective_times.hpp"

namespace strata::profile::test_collective_times {
namespace {

using ::testing::ElementsAre;
using Groups = std::vector<std::vector<int>>;

TEST(GroupsByShape, OfOneShapeAreMeasuredAtOnceIfTheyAreDisjoint) {
  // Two nodes of two ranks: pairs in a node, pairs over nodes, all.
  const std::vector<Groups> of_ranks = {{{0, 1}, {0, 2}, {0, 1, 2, 3}},
                                        {{0, 1}, {1, 3}, {0, 1, 2, 3}},
                                        {{2, 3}, {0, 2}, {0, 1, 2, 3}},
                                        {{2, 3}, {1, 3}, {0, 1, 2, 3}}};
  EXPECT_THAT(groups_by_shape(of_ranks, 2),
              ElementsAre(GroupsOfShape{{2, 1}, {{0, 1}, {2, 3}}}, GroupsOfShape{{1, 2}, {{0, 2}, {1, 3}}},
                          GroupsOfShape{{2, 2}, {{0, 1, 2, 3}}}));
  EXPECT_THAT(groups_by_shape(of_ranks, 4),
              ElementsAre(GroupsOfShape{{2, 1}, {{0, 1}, {2, 3}}}, GroupsOfShape{{4, 1}, {{0, 1, 2, 3}}}));
}

/// The first and the last stage share a parameter: the ranks between them have no such group.
TEST(GroupsByShape, OfSomeRanksAloneAreKnownToAll) {
  const std::vector<Groups> of_ranks = {{{0, 1, 2, 3}, {0, 3}}, {{0, 1, 2, 3}}, {{0, 1, 2, 3}}, {{0, 1, 2, 3}, {0, 3}}};
  EXPECT_THAT(groups_by_shape(of_ranks, 4),
              ElementsAre(GroupsOfShape{{4, 1}, {{0, 1, 2, 3}}}, GroupsOfShape{{2, 1}, {{0, 3}}}));
}

TEST(GroupsByShape, OfOneRankAreNone) {
  EXPECT_TRUE(groups_by_shape(std::vector<Groups>{{{0}}, {{1}}}, 2).empty());
  EXPECT_TRUE(groups_by_shape(std::vector<Groups>{{}}, 1).empty());
}

}  // namespace
}  // namespace strata::profile::test_collective_times
