/// @file
/// Not a test but what a test looks at: an expectation, or an exception, fails on rank 2 alone, while the others wait
/// for it in a collective that it never enters. The job must end with that rank's message, soon.

#include <gtest/gtest.h>

#include <stdexcept>

#include "comm/world.hpp"

namespace strata::comm {
namespace {

TEST(FailingRank, Expectation) {
  const World world;
  if (world.rank() == 2) {
    EXPECT_EQ(world.rank(), 0) << "planted";
    return;  // and on to the next test, whose collectives match nobody's
  }
  world.barrier();
}

TEST(FailingRank, Exception) {
  const World world;
  if (world.rank() == 2) throw std::runtime_error("planted");
  world.barrier();
}

}  // namespace
}  // namespace strata::comm
