/// @file
/// Descriptions of clusters are found by name and by path; what is not found is answered with what there is.

#include <gmock/gmock.h>

#include "config/cluster_files.hpp"
#include "unit/data/temporary_folder.hpp"

namespace strata {
namespace {

using data::TemporaryFolder;
using data::user_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

const std::vector<fs::path> shipped = {STRATA_SOURCE_DIR "/experiments/clusters"};

TEST(ClusterFiles, EveryShippedNameFindsItsDescription) {
  const std::vector<fs::path> files = cluster_files(shipped);
  ASSERT_FALSE(files.empty());
  for (const fs::path& file : files) {
    EXPECT_EQ(find_cluster(file.stem().string(), shipped, "cluster").name, file.stem().string());
  }
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
  const std::vector<fs::path> folders = {folder.path(".")};
  EXPECT_EQ(user_error([&] { find_cluster("gama", folders, "e.toml:3: cluster"); }),
            "e.toml:3: cluster = \"gama\": no such description; did you mean \"gamma\"?; known: gamma, beta, alpha; a "
            "path ends in .toml");
  EXPECT_THAT(user_error([&] { find_cluster("gama", {}, "cluster"); }), HasSubstr("known: none"));
}

TEST(ClusterFiles, TheFirstFolderHasItsWay) {
  const TemporaryFolder near;
  const TemporaryFolder far;
  near.write("a.toml", std::string("name = \"near\"\n"));
  far.write("a.toml", std::string("name = \"far\"\n"));
  far.write("b.toml", std::string("name = \"b\"\n"));
  const std::vector<fs::path> folders = {near.path("."), far.path("missing"), far.path(".")};
  EXPECT_EQ(find_cluster("a", folders, "cluster").name, "near");
  EXPECT_THAT(cluster_files(folders), ElementsAre(near.path("./a.toml"), far.path("./b.toml")));
}

TEST(ClusterFiles, WhatContradictsItselfIsNamedWithItsFile) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad.toml", std::string("name = \"bad\"\ndevices_per_node = 4\n"));
  EXPECT_THAT(user_error([&] { read_cluster(path); }),
              AllOf(StartsWith(path + ": "), HasSubstr("intra_node.bandwidth_bytes_per_second: 0 is out of range")));
  EXPECT_EQ(user_error([&] { read_cluster(folder.path("")); }), folder.path("") + ": cannot be read: is a directory");
}

TEST(ClusterFiles, FoldersAboveTheStartComeNearestFirst) {
  EXPECT_THAT(cluster_folders_above("/a/./b"),
              ElementsAre("/a/b/clusters", "/a/b/experiments/clusters", "/a/clusters", "/a/experiments/clusters",
                          "/clusters", "/experiments/clusters"));
}

}  // namespace
}  // namespace strata
