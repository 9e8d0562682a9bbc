/// @file
/// Descriptions of clusters are found by name and by path; what is not found is answered with what there is.

#include <gmock/gmock.h>

#include "config/cluster_files.hpp"
#include "support/source_dir.hpp"
#include "unit/data/temporary_folder.hpp"

namespace strata::test_cluster_files {
namespace {

using data::TemporaryFolder;
using data::user_error;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
const LookUp shipped = look_up_in({}, test::source_dir() + "/experiments/clusters");

TEST(ClusterFiles, EveryShippedNameFindsItsDescription) {
  ASSERT_FALSE(shipped.files.empty());
  for (const auto& [name, file] : shipped.files) EXPECT_EQ(find_cluster(name, shipped, "cluster").name, name);
}

TEST(ClusterFiles, APathIsReadAsItIs) {
  const TemporaryFolder folder;
  const std::string path = folder.write("mine.toml", std::string("name = \"other\"\n"));
  EXPECT_EQ(find_cluster(path, {}, "cluster").name, "other");
  EXPECT_EQ(user_error([&] { find_cluster(folder.path("no.toml"), shipped, "e.toml:3: cluster"); }),
            "e.toml:3: cluster = \"" + folder.path("no.toml") + "\": no such file");
}

TEST(ClusterFiles, AnUnknownNameListsTheKnownOnesNearestFirst) {
  const TemporaryFolder folder;
  for (const std::string name : {"alpha", "beta", "gamma"}) {
    folder.write(name + ".toml", "name = \"" + name + "\"\n");
  }
  folder.write("notes.txt", std::string("no description"));
  const LookUp folders = look_up_in({}, folder.path(""));
  EXPECT_EQ(user_error([&] { find_cluster("gama", folders, "e.toml:3: cluster"); }),
            "e.toml:3: cluster = \"gama\": no such description; did you mean \"gamma\"?; known: gamma, beta, alpha; a "
            "path ends in .toml");
  EXPECT_THAT(user_error([&] { find_cluster("gama", {}, "cluster"); }), HasSubstr("known: none"));
}

TEST(ClusterFiles, WhatContradictsItselfIsNamedWithItsFile) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad.toml", std::string("name = \"bad\"\ndevices_per_node = 4\n"));
  EXPECT_THAT(user_error([&] { read_cluster(path); }),
              AllOf(StartsWith(path + ": "), HasSubstr("intra_node.bandwidth_bytes_per_second: 0 is out of range")));
  EXPECT_EQ(user_error([&] { read_cluster(folder.path("")); }), folder.path("") + ": cannot be read: is a directory");
}

}  // namespace
}  // namespace strata::test_cluster_files
