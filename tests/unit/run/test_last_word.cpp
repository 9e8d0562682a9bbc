#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "results/status.hpp"
#include "run/last_word.hpp"

namespace strata::run::test_last_word {
namespace {

/// The only child of @p process; 0 if it has none.
pid_t child_of(pid_t process) {
  pid_t child = 0;
  std::ifstream(fmt::format("/proc/{0}/task/{0}/children", process)) >> child;
  return child;
}

/// What becomes of a process that has a last word when @p signal meets the process beside it.
int status_after(int signal) {
  const pid_t rank = ::fork();
  if (rank == 0) {
    ::alarm(20);
    {
      LastWord last_word;
      const pid_t beside = child_of(::getpid());
      if (beside == 0 || ::kill(beside, signal) != 0) ::_exit(1);
      siginfo_t info;
      ::waitid(P_PID, static_cast<id_t>(beside), &info, WEXITED | WSTOPPED | WNOWAIT);
      last_word.watch("/nowhere/1.status.json", 0);
      last_word.release();
    }
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(rank, &status, 0), rank);
  return status;
}

TEST(LastWord, ARankOutlivesTheProcessBesideIt) { EXPECT_EQ(status_after(SIGKILL), 0) << "status of waitpid"; }

TEST(LastWord, ARankDoesNotWaitForAStoppedProcessBesideIt) {
  EXPECT_EQ(status_after(SIGSTOP), 0) << "status of waitpid";
}

const results::Outcome transport_failed{results::Status::communication_error, "a connection was reset"};

class EndingOfFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_);
    results::write_status(path_, results::Status::running, "", 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / fmt::format("last_word_{}", ::getpid());
  std::string path_ = (folder_ / "1.status.json").string();
};

TEST_F(EndingOfFailure, AKilledRankIsTheReasonOfASurvivorsCommunicationError) {
  int watched[2];
  ASSERT_EQ(::pipe(watched), 0);
  const pid_t rank = ::fork();
  if (rank == 0) {
    ::alarm(20);
    LastWord last_word;
    last_word.watch(path_, 0);
    if (::write(watched[1], "w", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(watched[0], &byte, 1), 1);
  ::close(watched[0]);
  ::close(watched[1]);
  const pid_t beside = child_of(rank);
  ASSERT_NE(beside, 0);
  ASSERT_EQ(::kill(beside, SIGSTOP), 0);  // a busy host: the survivor hears of the death before it is written down
  ASSERT_EQ(::kill(rank, SIGKILL), 0);
  ASSERT_EQ(::waitpid(rank, nullptr, 0), rank);
  std::thread host([beside] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::kill(beside, SIGCONT);
  });
  const results::Outcome ending = ending_of_failure(transport_failed, path_);
  host.join();
  EXPECT_EQ(ending.status, results::Status::killed);
  EXPECT_EQ(ending.message, results::read_status(path_).message);
  EXPECT_THAT(ending.message, ::testing::HasSubstr(fmt::format("rank 0 (process {}) ended without a word", rank)));
}

TEST_F(EndingOfFailure, ACommunicationErrorWithoutADeathIsItsOwnEnding) {
  const results::Outcome ending = ending_of_failure(transport_failed, path_);
  EXPECT_EQ(ending.status, transport_failed.status);
  EXPECT_EQ(ending.message, transport_failed.message);
  EXPECT_EQ(results::read_status(path_).status, results::Status::running);
}

TEST_F(EndingOfFailure, EveryOtherFailureIsItsOwnEnding) {
  results::write_status(path_, results::Status::killed, "rank 1 ended without a word", 1);
  const results::Outcome ending = ending_of_failure({results::Status::oom, "no memory"}, path_);
  EXPECT_EQ(ending.status, results::Status::oom);
  EXPECT_EQ(ending.message, "no memory");
}

}  // namespace
}  // namespace strata::run::test_last_word
