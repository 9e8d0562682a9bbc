#include "run/last_word.hpp"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <thread>

#include "base/error.hpp"
#include "results/status.hpp"

namespace strata::run {
namespace {

/// A message is its length and that many bytes: "<rank> <status path>", or nothing to watch, or, as the last one before
/// a sudden end, the reason of it behind this letter.
constexpr char reason_follows = '!';

std::string framed(const std::string& message) {
  const std::uint64_t size = message.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  return bytes + message;
}

/// What a handler of signals needs: no more than send(2) is allowed there.
struct BusErrorReport {
  int socket = -1;
  std::string bytes = framed(
      fmt::format("{}SIGBUS, on memory that a file backs: a data file was cut short during the run, or its disk failed",
                  reason_follows));
};
BusErrorReport bus_error_report;

void report_bus_error(int signal) {
  ::send(bus_error_report.socket, bus_error_report.bytes.data(), bus_error_report.bytes.size(), MSG_NOSIGNAL);
  ::signal(signal, SIG_DFL);  // what failed is tried again, and ends the process
}

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

[[noreturn]] void stand_by(int socket, std::int64_t watched_pid) {
  ::setsid();
  ::prctl(PR_SET_NAME, "strata-lastword", 0, 0, 0);  // as `ps` shows it
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(signal, SIG_IGN);
  close_all_but(socket);
  std::string watched;
  std::string reason = "SIGKILL, or out of memory on its host";
  std::uint64_t size = 0;
  while (read_all(socket, &size, sizeof size)) {
    std::string message(size, '\0');
    if (!read_all(socket, message.data(), size)) break;
    if (message.starts_with(reason_follows)) {
      reason = message.substr(1);
    } else {
      watched = std::move(message);
    }
  }
  if (!watched.empty()) {
    try {
      const std::size_t space = watched.find(' ');
      const int rank = std::stoi(watched);
      results::write_status(watched.substr(space + 1), results::Status::killed,
                            fmt::format("rank {} (process {}) ended without a word: {}", rank, watched_pid, reason),
                            rank);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): there is nobody left to tell
    }
  }
  ::_exit(0);
}

constexpr std::chrono::seconds patience_for_last_words{1};
constexpr std::chrono::milliseconds pause_between_looks{10};

}  // namespace

results::Outcome ending_of_failure(const results::Outcome& failure, const std::string& status_path) {
  if (failure.status != results::Status::communication_error) return failure;
  const auto deadline = std::chrono::steady_clock::now() + patience_for_last_words;
  while (std::chrono::steady_clock::now() < deadline) {
    const results::StatusFile said = results::read_status(status_path);
    if (said.status != results::Status::running) return {said.status, said.message};
    std::this_thread::sleep_for(pause_between_looks);
  }
  return failure;
}

LastWord::LastWord() {
  // Sockets, and no pipe: writing to a pipe whose reader is gone raises SIGPIPE, which would take this process along.
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw InternalError(fmt::format("no socket for the last word: {}", std::strerror(errno)));
  }
  const std::int64_t pid = ::getpid();
  child_ = ::fork();
  if (child_ < 0) throw InternalError(fmt::format("no process for the last word: {}", std::strerror(errno)));
  if (child_ == 0) stand_by(ends[0], pid);
  ::close(ends[0]);
  socket_ = ends[1];
}

LastWord::~LastWord() {
  release();
  ::close(socket_);
  ::kill(child_, SIGKILL);  // it has nothing left to do, and somebody may have stopped it
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void LastWord::watch(const std::string& status_path, int rank) {
  tell(fmt::format("{} {}", rank, status_path));
  bus_error_report.socket = socket_;
  ::signal(SIGBUS, report_bus_error);
}

void LastWord::release() { tell(""); }

void LastWord::tell(const std::string& message) {
  const std::string bytes = framed(message);
  // Short enough to be taken in one piece. A child that is gone costs the last word, not the run.
  while (::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace strata::run
