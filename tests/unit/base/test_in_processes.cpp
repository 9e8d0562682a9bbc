/// @file
/// Pieces of work in several processes: their values, output in order, errors, and a process that dies.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/in_processes.hpp"

namespace strata::test_in_processes {
namespace {

using testing::HasSubstr;

struct Heard {
  std::vector<int> values;
  std::string output, error;
  std::vector<std::size_t> done;  ///< what is_done was called with
};

Heard heard(std::size_t count, int num_processes, const std::function<int(std::size_t)>& work) {
  Heard result;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto stop = [&] {
    flush_output();
    result.output = testing::internal::GetCapturedStdout();
    result.error = testing::internal::GetCapturedStderr();
  };
  try {
    result.values = in_processes(
        "piece", count, num_processes, work, [&](std::size_t num) { result.done.push_back(num); }, [] {});
  } catch (...) {
    stop();
    throw;
  }
  stop();
  return result;
}

/// Later pieces end sooner.
int speak(std::size_t piece) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5 * (7 - static_cast<int>(piece))));
  say("out {}\n", piece);
  if (piece % 2 == 1) say_error("error {}\n", piece);
  return static_cast<int>(piece * piece);
}

TEST(InProcesses, ReadsAsIfOnePieceFollowedTheOther) {
  for (const int num_processes : {1, 2, 3, 20}) {
    const Heard all = heard(7, num_processes, speak);
    EXPECT_EQ(all.values, (std::vector{0, 1, 4, 9, 16, 25, 36})) << num_processes;
    EXPECT_EQ(all.output, "out 0\nout 1\nout 2\nout 3\nout 4\nout 5\nout 6\n") << num_processes;
    EXPECT_EQ(all.error, "error 1\nerror 3\nerror 5\n") << num_processes;
    EXPECT_EQ(all.done.front(), 0U);
    EXPECT_TRUE(std::ranges::is_sorted(all.done));
  }
  EXPECT_TRUE(heard(0, 4, speak).values.empty());
}

TEST(InProcesses, AreSeveralAtOnce) {
  const std::vector<int> ids = heard(2, 2, [](std::size_t) {
                                 std::this_thread::sleep_for(std::chrono::milliseconds(50));
                                 return static_cast<int>(::getpid());
                               }).values;
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_NE(ids[0], static_cast<int>(::getpid()));
  EXPECT_EQ(heard(1, 2, [](std::size_t) { return static_cast<int>(::getpid()); }).values.front(),
            static_cast<int>(::getpid()));
}

TEST(InProcesses, CarryMuchOutput) {
  const std::string line(1'000'000, 'x');
  const Heard all = heard(4, 2, [&](std::size_t) {
    say("{}\n", line);
    return 0;
  });
  EXPECT_EQ(all.output.size(), 4 * (line.size() + 1));
}

TEST(InProcesses, TheFirstErrorIsThrownBehindWhatStandsBeforeIt) {
  const auto work = [](std::size_t piece) {
    if (piece == 2) throw UserError("the third is wrong");
    if (piece == 3) throw Unsupported("so is the fourth");
    return 0;
  };
  for (const int num_processes : {1, 2}) {
    try {
      heard(6, num_processes, work);
      ADD_FAILURE();
    } catch (const UserError& e) {
      EXPECT_STREQ(e.what(), "the third is wrong");
    }
  }
  EXPECT_THROW(heard(2, 2, [](std::size_t) -> int { throw Unsupported("no"); }), Unsupported);
  EXPECT_THROW(heard(2, 2, [](std::size_t) -> int { throw OutOfMemory("no"); }), OutOfMemory);
  EXPECT_THROW(heard(2, 2, [](std::size_t) -> int { throw std::logic_error("no"); }), std::runtime_error);
}

TEST(InProcesses, AProcessThatDiesIsNamedWithItsPiece) {
  try {
    heard(4, 2, [](std::size_t piece) {
      if (piece == 1) ::raise(SIGKILL);
      return 0;
    });
    ADD_FAILURE();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("the process of piece 1 ended with signal 9"));
  }
}

}  // namespace
}  // namespace strata::test_in_processes
