/// @file
/// Much work at once: each piece is done, and of those that fail the first is told, whoever was quicker.

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "base/at_once.hpp"
#include "base/error.hpp"

namespace strata::test_at_once {
namespace {

TEST(AtOnce, EachIsDoneOnce) {
  for (const std::size_t threads : {1U, 3U, 32U}) {
    for (const std::size_t count : {0U, 1U, 31U, 1000U}) {
      std::vector<int> done(count, 0);
      at_once(count, threads, [&](std::size_t i) { ++done[i]; });
      EXPECT_EQ(done, std::vector<int>(count, 1));
    }
  }
}

TEST(AtOnce, OneThreadIsTheCallers) {
  at_once(10, 1, [caller = std::this_thread::get_id()](std::size_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(AtOnce, TheFirstThatFailedIsToldOnceAllAreOver) {
  std::atomic<int> num_done{0};
  const auto read = [&](std::size_t i) {
    if (i == 7) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++num_done;
    if (i == 7 || i == 30) throw UserError(std::to_string(i));
  };
  try {
    at_once(100, 32, read);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "7");
  }
  EXPECT_EQ(num_done, 100);
}

}  // namespace
}  // namespace strata::test_at_once
