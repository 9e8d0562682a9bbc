/// @file
/// Equal parameters have one checksum however they lie; unequal copies are named.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "models/model.hpp"
#include "run/parameter_checksum.hpp"

namespace strata::run::test_parameter_checksum {
namespace {

using Held = std::vector<ParameterChecksum>;

ModelGraph mlp() { return build_model({.name = "mlp", .widths = {3, 4, 2}}); }

Held first_half() { return {{"block[0].linear.weight", 0, 11}, {"block[0].linear.bias", 0, 12}}; }
Held second_half() { return {{"head.weight", 0, 13}, {"head.bias", 0, 14}}; }
Held both() {
  Held all = second_half();  // a rank lists in its own order
  for (const ParameterChecksum& one : first_half()) all.push_back(one);
  return all;
}

TEST(ParameterChecksum, DoesNotDependOnWhoHoldsWhat) {
  const std::string text = join_checksums(mlp(), {both()}).text;
  EXPECT_EQ(text.size(), 16U);
  for (const std::vector<Held>& ranks :
       {std::vector<Held>{both(), both()}, {first_half(), second_half()}, {second_half(), first_half(), both()}}) {
    const JointChecksum joint = join_checksums(mlp(), ranks);
    EXPECT_EQ(joint.text, text);
    EXPECT_EQ(joint.difference, "");
  }
  Held other = both();
  other[2].checksum = 99;
  EXPECT_NE(join_checksums(mlp(), {other}).text, text);
  std::swap(other[2].checksum, other[3].checksum);
  EXPECT_NE(join_checksums(mlp(), {other}).text, text);
}

TEST(ParameterChecksum, CopiesThatDifferAreNamedWithTheirRanks) {
  Held other = second_half();
  other[1].checksum = 15;
  EXPECT_EQ(join_checksums(mlp(), {first_half(), second_half(), other}).difference,
            "head.bias of rank 2 (000000000000000f) differs from that of rank 1 (000000000000000e)");
  EXPECT_EQ(join_checksums(mlp(), {first_half(), {{"head.weight", 0, 1}, {"head.weight", 4, 2}}, second_half()})
                .difference.substr(0, 21),
            "head.weight of rank 2")
      << "parts of one parameter are compared with the same part";
}

TEST(ParameterChecksum, WhatNobodyHoldsIsAMistake) {
  EXPECT_THROW(join_checksums(mlp(), {first_half()}), InternalError);
}

TEST(ParameterChecksum, TravelsAsText) {
  EXPECT_EQ(parse_checksums(to_text(both())), both());
  EXPECT_TRUE(parse_checksums("").empty());
}

}  // namespace
}  // namespace strata::run::test_parameter_checksum
