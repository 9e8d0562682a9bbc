#include "harness/command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace strata::harness {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

/// @return its pid, or 0 where there is no such program.
pid_t start(const std::vector<std::string>& words, const std::vector<std::string>& environment, FileActions& actions) {
  posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, words.front().c_str(), actions.get(), nullptr, pointers(words).data(),
                                  pointers(environment).data());
  if (failed == ENOENT) return 0;
  if (failed != 0) throw UserError(fmt::format("{}: cannot be started: {}", words.front(), std::strerror(failed)));
  return pid;
}

int exit_code(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& words, const std::vector<std::string>& environment) {
  std::array<std::array<int, 2>, 2> pipes{};
  FileActions actions;
  for (std::size_t stream = 0; stream < 2; ++stream) {
    if (::pipe2(pipes[stream].data(), O_CLOEXEC) != 0) {
      throw UserError(fmt::format("{}: no pipe for its output: {}", words.front(), std::strerror(errno)));
    }
    posix_spawn_file_actions_adddup2(actions.get(), pipes[stream][1], static_cast<int>(stream) + STDOUT_FILENO);
  }
  const pid_t pid = start(words, environment, actions);
  for (const auto& ends : pipes) ::close(ends[1]);
  CommandResult result;
  std::array<pollfd, 2> open = {pollfd{pipes[0][0], POLLIN, 0}, pollfd{pipes[1][0], POLLIN, 0}};
  while (open[0].fd >= 0 || open[1].fd >= 0) {
    if (::poll(open.data(), open.size(), -1) < 0 && errno != EINTR) break;
    for (std::size_t stream = 0; stream < 2; ++stream) {
      if (open[stream].fd < 0 || open[stream].revents == 0) continue;
      std::array<char, 65536> buffer{};
      const ssize_t got = ::read(open[stream].fd, buffer.data(), buffer.size());
      if (got > 0) {
        (stream == 0 ? result.output : result.error).append(buffer.data(), static_cast<std::size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        open[stream].fd = -1;  // poll passes over it
      }
    }
  }
  for (const auto& ends : pipes) ::close(ends[0]);
  result.exit_code = pid == 0 ? 127 : exit_code(pid);
  return result;
}

int run_visibly(const std::vector<std::string>& words, const std::vector<std::string>& environment) {
  FileActions actions;
  const pid_t pid = start(words, environment, actions);
  return pid == 0 ? 127 : exit_code(pid);
}

}  // namespace strata::harness
