/// @file
/// Many reads at once: each is done, and of those that fail the first is told, whoever was quicker.

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "harness/read_at_once.hpp"

namespace strata::harness::test_read_at_once {
namespace {

TEST(ReadAtOnce, EachIsDoneOnce) {
  for (const std::size_t count : {0U, 1U, 31U, 1000U}) {
    std::vector<int> done(count, 0);
    read_at_once(count, [&](std::size_t i) { ++done[i]; });
    EXPECT_EQ(done, std::vector<int>(count, 1));
  }
}

TEST(ReadAtOnce, TheFirstThatFailedIsToldOnceAllAreOver) {
  std::atomic<int> num_done{0};
  const auto read = [&](std::size_t i) {
    if (i == 7) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++num_done;
    if (i == 7 || i == 30) throw UserError(std::to_string(i));
  };
  try {
    read_at_once(100, read);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "7");
  }
  EXPECT_EQ(num_done, 100);
}

}  // namespace
}  // namespace strata::harness::test_read_at_once
