#include "run/last_word.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>

#include "base/error.hpp"
#include "results/status.hpp"

namespace strata::run {
namespace {

/// A message is its length and that many bytes: "<rank> <status path>", or nothing to watch.
bool read_all(int file, void* into, std::size_t num_bytes) {
  auto* at = static_cast<char*>(into);
  while (num_bytes > 0) {
    const ssize_t got = ::read(file, at, num_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    num_bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

/// Close every descriptor but @p kept: the launcher waits for the ends of its pipes.
void close_all_but(int kept) {
  if (kept > 0) ::close_range(0, static_cast<unsigned>(kept) - 1, 0);
  ::close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
}

[[noreturn]] void stand_by(int pipe, std::int64_t watched_pid) {
  ::setsid();
  ::prctl(PR_SET_NAME, "strata-lastword", 0, 0, 0);  // as `ps` shows it
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(signal, SIG_IGN);
  close_all_but(pipe);
  std::string watched;
  std::uint64_t size = 0;
  while (read_all(pipe, &size, sizeof size)) {
    std::string message(size, '\0');
    if (!read_all(pipe, message.data(), size)) break;
    watched = std::move(message);
  }
  if (!watched.empty()) {
    try {
      const std::size_t space = watched.find(' ');
      const int rank = std::stoi(watched);
      results::write_status(
          watched.substr(space + 1), results::Status::killed,
          fmt::format("rank {} (process {}) ended without a word: SIGKILL, or out of memory on its host", rank,
                      watched_pid),
          rank);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): there is nobody left to tell
    }
  }
  ::_exit(0);
}

}  // namespace

LastWord::LastWord() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw InternalError(fmt::format("no pipe for the last word: {}", std::strerror(errno)));
  }
  const std::int64_t pid = ::getpid();
  child_ = ::fork();
  if (child_ < 0) throw InternalError(fmt::format("no process for the last word: {}", std::strerror(errno)));
  if (child_ == 0) stand_by(ends[0], pid);
  ::close(ends[0]);
  pipe_ = ends[1];
}

LastWord::~LastWord() {
  release();
  ::close(pipe_);
  ::waitpid(child_, nullptr, 0);
}

void LastWord::watch(const std::string& status_path, int rank) { tell(fmt::format("{} {}", rank, status_path)); }

void LastWord::release() { tell(""); }

void LastWord::tell(const std::string& message) {
  const std::uint64_t size = message.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += message;
  // Short enough for the pipe in one piece. A child that is gone costs the last word, not the run.
  const ssize_t written = ::write(pipe_, bytes.data(), bytes.size());
  (void)written;
}

}  // namespace strata::run
