/// @file
/// An error of one rank reaches all ranks with its type and its text.

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <typeinfo>

#include "base/error.hpp"
#include "comm/collective_error.hpp"

namespace strata::comm::test_collective_error {
namespace {

template <typename Error>
class CollectiveErrors : public testing::Test {};

using Kinds = testing::Types<UserError, LaunchMismatch, Unsupported, OutOfMemory, CommunicationError, InternalError>;
static_assert(num_error_kinds == 6, "each kind is tested");
TYPED_TEST_SUITE(CollectiveErrors, Kinds);

/// With lines and quotes, as errors of files have.
const std::string text = "a.toml:3: \"x\"\n  accepted: 1, 2";

/// What is thrown must be a @p Error and nothing derived from it.
template <typename Error, typename Call>
void expect_thrown(const Call& call) {
  try {
    call();
    ADD_FAILURE() << "nothing is thrown";
  } catch (const std::exception& e) {
    EXPECT_EQ(typeid(e), typeid(Error));
    EXPECT_EQ(e.what(), text);
  }
}

TYPED_TEST(CollectiveErrors, TheLastRanksErrorIsThrownOnAll) {
  const World world;
  expect_thrown<TypeParam>([&] {
    on_all_ranks(world, [&] {
      if (world.rank() == world.size() - 1) throw TypeParam(text);
    });
  });
}

TYPED_TEST(CollectiveErrors, TheErrorOfRank0AloneIsThrownOnAll) {
  const World world;
  expect_thrown<TypeParam>([&] { on_rank_0(world, [] { throw TypeParam(text); }); });
}

TEST(CollectiveError, TheLowestFailingRankSpeaks) {
  const World world;
  const auto error = collective_error(world, [&] {
    if (world.rank() == world.size() - 1) throw UserError("last");
    if (world.rank() > 0) throw Unsupported("rank " + std::to_string(world.rank()));
  });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind, world.size() > 2 ? ErrorKind::unsupported : ErrorKind::user_error);
  EXPECT_EQ(error->message, world.size() > 2 ? "rank 1" : "last");
}

TEST(CollectiveError, WhatIsNotOursIsAnInternalError) {
  const World world;
  expect_thrown<InternalError>([&] {
    on_all_ranks(world, [&] {
      if (world.rank() == world.size() - 1) throw std::length_error(text);
    });
  });
}

TEST(CollectiveError, AnErrorWithoutATextIsOne) {
  const World world;
  EXPECT_THROW(on_rank_0(world, [] { throw UserError(""); }), UserError);
}

TEST(CollectiveError, WhereNobodyFailsAllGoOn) {
  const World world;
  int num_calls = 0;
  on_all_ranks(world, [&] { ++num_calls; });
  on_rank_0(world, [&] { ++num_calls; });
  EXPECT_EQ(num_calls, world.rank() == 0 ? 2 : 1);
}

}  // namespace
}  // namespace strata::comm::test_collective_error
