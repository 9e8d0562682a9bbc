/// @file
/// Names are looked up where nobody but the user and root may put files, and what is left out is said.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "base/look_up.hpp"
#include "unit/data/temporary_folder.hpp"

namespace strata::test_look_up {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
namespace fs = std::filesystem;

class LookUpOfNames : public ::testing::Test {
 protected:
  fs::path made(const std::string& name, mode_t mode) const {
    const fs::path path = folder.path(name);
    fs::create_directories(path);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  data::TemporaryFolder folder;
};

TEST_F(LookUpOfNames, OwnFoldersAreLookedInBelowStickyOnesToo) {
  EXPECT_EQ(who_else_may_write(made("sites", 0755)), "");
  made("shared", 01777);
  EXPECT_EQ(who_else_may_write(made("shared/mine", 0700)), "");
}

TEST_F(LookUpOfNames, FoldersThatOthersMayWriteAreNot) {
  EXPECT_THAT(who_else_may_write(made("sites", 0777)), HasSubstr("everybody may write"));
  EXPECT_THAT(who_else_may_write(made("shared", 01777)), HasSubstr("everybody may write"));
  made("open", 0777);
  EXPECT_THAT(who_else_may_write(made("open/mine", 0700)), HasSubstr("everybody may write " + folder.path("open")));
  const fs::path link = folder.path("link");
  fs::create_directory_symlink(folder.path("open"), link);
  EXPECT_THAT(who_else_may_write(link), HasSubstr("everybody may write"));
}

TEST_F(LookUpOfNames, FoldersOfOthersAreNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives folders to others, which needs root";
  const fs::path theirs = made("theirs", 0755);
  ASSERT_EQ(::chown(theirs.c_str(), 65534, 65534), 0);
  EXPECT_THAT(who_else_may_write(theirs), HasSubstr("belongs to user 65534"));
  EXPECT_THAT(who_else_may_write(made("theirs/mine", 0755)), HasSubstr("belongs to user 65534"));
  const fs::path groups = made("groups", 0775);
  ASSERT_EQ(::chown(groups.c_str(), 0, 65534), 0);
  EXPECT_THAT(who_else_may_write(groups), HasSubstr("group 65534 may write"));
}

TEST_F(LookUpOfNames, WhatShipsComesLastWhoeverOwnsIt) {
  const std::array own = {made("a", 0755), made("b", 0777), fs::path(folder.path("missing"))};
  const fs::path shipped = made("shipped", 0777);
  for (const char* file : {"a/x.toml", "b/y.toml", "shipped/x.toml", "shipped/z.toml", "shipped/notes.txt"}) {
    folder.write(file, std::string());
  }
  const LookUp look_up = look_up_in(own, shipped);
  EXPECT_THAT(look_up.files, ElementsAre(Pair("x", own[0] / "x.toml"), Pair("z", shipped / "z.toml")));
  EXPECT_EQ(not_used(look_up), "not used: " + own[1].string() + " (everybody may write " + own[1].string() + ")");
  EXPECT_THAT(not_used({}), IsEmpty());
}

TEST_F(LookUpOfNames, FilesThatOthersMayWriteAreLeftOutOfOnesOwnFolder) {
  const std::array own = {made("own", 0755)};
  made("open", 0777);
  for (const char* file : {"own/mine.toml", "own/open.toml", "own/theirs.toml", "open/linked.toml"}) {
    folder.write(file, std::string());
  }
  ASSERT_EQ(::chmod(folder.path("own/open.toml").c_str(), 0666), 0);
  fs::create_symlink(folder.path("open/linked.toml"), own[0] / "linked.toml");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(folder.path("own/theirs.toml").c_str(), 65534, 65534), 0);
  } else {
    fs::remove(own[0] / "theirs.toml");
  }
  const LookUp look_up = look_up_in(own, folder.path("missing"));
  EXPECT_THAT(look_up.files, ElementsAre(Pair("mine", own[0] / "mine.toml")));
  EXPECT_THAT(not_used(look_up), HasSubstr("open.toml (everybody may write " + folder.path("own/open.toml") + ")"));
  EXPECT_THAT(not_used(look_up), HasSubstr("linked.toml (everybody may write " + folder.path("open") + ")"));
}

}  // namespace
}  // namespace strata::test_look_up
