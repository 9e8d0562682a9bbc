/// @file
/// A profile's text and back, merging, and what is refused.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.hpp"
#include "ir/machine/cost_profile.hpp"

namespace strata::test_cost_profile {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

CostProfile sample() {
  CostProfile profile;
  profile.machine = "a processor, 2 cores";
  profile.provenance = {{"strata", "0.1.0"}, {"threads_per_rank", "1"}};
  profile.peaks = {{"f32", 2, 2.1e11}};
  profile.kernels = {{"linear_forward f32", {128, 512, 64}, 8.4e6, 2, 1.5e-4, 18}};
  profile.collectives = {{Collective::all_reduce, {2, 1}, "shm", 4096, 2.5e-5},
                         {Collective::reduce, {2, 1}, "shm", 4096, 1.5e-5},
                         {Collective::send, {1, 2}, "mpi", 64, 1e-4}};
  profile.lines = {{Collective::all_reduce, {2, 1}, "shm", 1e-5, 2e-10, 0.07}};
  profile.interference = {{2, "shm", 1.1, 4.0}};
  profile.step_overhead_seconds = {{1, 6e-5}, {2, 9e-5}};
  return profile;
}

TEST(CostProfile, TextRoundTrip) {
  const CostProfile profile = sample();
  EXPECT_EQ(parse_cost_profile(to_text(profile), "p.toml"), profile);
  EXPECT_EQ(to_text(parse_cost_profile(to_text(profile), "p.toml")), to_text(profile));
}

TEST(CostProfile, NewerTimesReplaceOlderOnes) {
  CostProfile profile = sample();
  CostProfile newer = sample();
  newer.kernels[0].seconds = 3e-4;
  newer.kernels.push_back({"add f32", {10}, 120, 2, 1e-6, 3});
  newer.collectives.clear();
  merge(profile, newer);
  EXPECT_EQ(profile.kernels, newer.kernels);
  EXPECT_EQ(profile.collectives, sample().collectives);
  newer.machine = "another";
  EXPECT_THAT([&] { merge(profile, newer); }, ThrowsMessage<UserError>(HasSubstr("two machines")));
}

TEST(CostProfile, BadTextNamesFileLineAndKey) {
  const auto complaint = [](const std::string& text) {
    try {
      parse_cost_profile(text, "p.toml");
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(complaint("x = 1"), HasSubstr("machine"));
  EXPECT_THAT(complaint("machine = \"m\"\n[[kernels]]\nkind = \"add f32\"\nwork = 1.0\nseconds = 0.0\n"),
              HasSubstr("kernel add f32"));
  EXPECT_THAT(complaint("machine = \"m\"\n[[collectives]]\nkind = \"all_reduc\"\n"),
              AllOf(HasSubstr("p.toml:3"), HasSubstr("all_reduce | reduce_scatter")));
  EXPECT_THAT(complaint("machine = \"m\"\n[[kernels]]\nkind = \"add f32\"\nseconds = 1.0\nwork = 1.0\nspeed = 3\n"),
              AllOf(HasSubstr("p.toml:6"), HasSubstr("speed")));
  EXPECT_THAT(complaint("machine = \"m\"\n[step_overhead_seconds]\nmany = 1.0\n"), HasSubstr("a number of ranks"));
}

TEST(CostProfile, SizesOfOneKindAreEquallyMany) {
  CostProfile profile = sample();
  profile.kernels.push_back({"linear_forward f32", {1, 2}, 1.0, 2, 1.0, 1});
  EXPECT_THAT([&] { verify(profile); }, ThrowsMessage<UserError>(HasSubstr("2 sizes, but other rows")));
}

TEST(CostProfile, KeysThatAreNoCountsOfRanks) {
  for (const char* key : {"99999999999", "0", "-1", "1x"}) {
    const std::string text = fmt::format("machine = \"m\"\n[step_overhead_seconds]\n{} = 1.0\n", key);
    EXPECT_THAT([&] { parse_cost_profile(text, "p.toml"); },
                ThrowsMessage<UserError>(AllOf(HasSubstr("p.toml:3: step_overhead_seconds"), HasSubstr("ranks >= 1"))))
        << key;
  }
}

TEST(CostProfile, WhatARowSaysWrongIsSaidWithTheFile) {
  EXPECT_THAT(
      [] {
        parse_cost_profile("machine = \"m\"\n[[collectives]]\nkind = \"send\"\ngroup = \"2x1\"\nseconds = 0\n",
                           "p.toml");
      },
      ThrowsMessage<UserError>(HasSubstr("p.toml: profile: send of 0 bytes")));
}

}  // namespace
}  // namespace strata::test_cost_profile
