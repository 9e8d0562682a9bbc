#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "run/last_word.hpp"

namespace strata::run {
namespace {

/// The only child of this process.
pid_t child_of_this_process() {
  pid_t child = 0;
  std::ifstream(fmt::format("/proc/self/task/{}/children", ::getpid())) >> child;
  return child;
}

/// What becomes of a process that has a last word when @p signal meets the process beside it.
int status_after(int signal) {
  const pid_t rank = ::fork();
  if (rank == 0) {
    ::alarm(20);
    {
      LastWord last_word;
      const pid_t beside = child_of_this_process();
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

}  // namespace
}  // namespace strata::run
