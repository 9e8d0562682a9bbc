/// @file
/// Sites are read whole or refused with the line; shipped ones say what the documentation lists.

#include <gmock/gmock.h>

#include "harness/site.hpp"
#include "support/source_dir.hpp"
#include "unit/data/temporary_folder.hpp"

namespace strata::harness::test_site {
namespace {

using data::user_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
namespace fs = std::filesystem;

const LookUp shipped = look_up_in({}, strata::test::source_dir() + "/jobscripts/sites");

TEST(Site, EveryShippedSiteIsRead) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(strata::test::source_dir() + "/jobscripts/sites")) {
    EXPECT_EQ(find_site(entry.path().stem().string(), shipped).name, entry.path().stem().string());
    ++count;
  }
  EXPECT_GE(count, 2);
}

TEST(Site, AllKeys) {
  const Site site = parse_site(R"(
scheduler = "slurm"
partition = "long"
account = "p1"
qos = "high"
constraint = "a100"
directives = ["--switches=1", "--mail-type=END"]
modules = ["gcc/12", "mpich"]
setup = ["ulimit -c 0"]
launcher = "srun --mpi=cray_shasta"
cpu_bind = "cores"
exclusive = false
gpus_per_node = 4
time_limit_margin_seconds = 90
[environment]
FI_PROVIDER = "cxi"
A = "1"
)",
                               "sites/here.toml");
  EXPECT_EQ(site.name, "here");
  EXPECT_EQ(site.partition, "long");
  EXPECT_EQ(site.account, "p1");
  EXPECT_EQ(site.qos, "high");
  EXPECT_EQ(site.constraint, "a100");
  EXPECT_THAT(site.directives, ElementsAre("--switches=1", "--mail-type=END"));
  EXPECT_THAT(site.modules, ElementsAre("gcc/12", "mpich"));
  EXPECT_THAT(site.setup, ElementsAre("ulimit -c 0"));
  EXPECT_EQ(site.launcher, "srun --mpi=cray_shasta");
  EXPECT_EQ(site.cpu_bind, "cores");
  EXPECT_FALSE(site.exclusive);
  EXPECT_EQ(site.gpus_per_node, 4);
  EXPECT_EQ(site.time_limit_margin_seconds, 90);
  EXPECT_THAT(site.environment, ElementsAre(Pair("FI_PROVIDER", "cxi"), Pair("A", "1")));
}

TEST(Site, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_THAT(user_error([] { parse_site("\npartitoin = \"x\"\n", "s.toml"); }),
              AllOf(HasSubstr("s.toml:2"), HasSubstr("partitoin")));
  EXPECT_THAT(user_error([] { parse_site("scheduler = \"pbs\"\n", "s.toml"); }),
              AllOf(HasSubstr("s.toml:1"), HasSubstr("slurm | none")));
  EXPECT_THAT(user_error([] { parse_site("modules = \"gcc\"\n", "s.toml"); }), HasSubstr("a list of strings"));
  EXPECT_THAT(user_error([] { parse_site("[environment]\nA = 1\n", "s.toml"); }), HasSubstr("A"));
}

TEST(Site, NamesOfVariablesAreNoShellCode) {
  for (const char* name : {"A;reboot", "A B", "1A", "", "A=$(x)", "A\\nB"}) {
    const std::string text = "[environment]\n\"" + std::string(name) + "\" = \"1\"\n";
    EXPECT_THAT(user_error([&] { parse_site(text, "s.toml"); }), HasSubstr("is no name of a variable")) << name;
  }
}

TEST(Site, AnUnknownNameListsTheKnownOnes) {
  EXPECT_THAT(user_error([] { find_site("locl", shipped); }),
              AllOf(HasSubstr("locl"), HasSubstr("local"), HasSubstr("slurm")));
}

}  // namespace
}  // namespace strata::harness::test_site
