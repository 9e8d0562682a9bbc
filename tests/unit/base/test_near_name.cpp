/// @file
/// Edits between names, and when a suggestion is made.

#include <gmock/gmock.h>

#include "base/near_name.hpp"

namespace strata::test_near_name {
namespace {

using ::testing::ElementsAre;

TEST(NearName, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("sharding", "shradnig"), 2);
  EXPECT_EQ(edit_distance("ADAM", "adam"), 0);
}

TEST(NearName, SuggestsOnlyWhatMayBeASlip) {
  const std::vector<std::string> known = {"layers", "hidden", "heads"};
  EXPECT_EQ(did_you_mean("heds", known), "; did you mean \"heads\"?");
  EXPECT_EQ(did_you_mean("vocabulary", known), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

TEST(NearName, NearestFirstTiesInTheirOrder) {
  const std::vector<std::string> known = {"ab", "ac", "zzz", "a"};
  EXPECT_THAT(nearest_names("a", known, 3), ElementsAre("a", "ab", "ac"));
  EXPECT_THAT(nearest_names("a", known, 9), ElementsAre("a", "ab", "ac", "zzz"));
}

}  // namespace
}  // namespace strata::test_near_name
