#include "base/in_processes.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/console.hpp"
#include "base/error.hpp"

namespace strata {
namespace {

enum class Ending : std::uint8_t { returned, user_error, unsupported, out_of_memory, other_error };

/// What a process tells of a piece. With is_begun it has only been taken, so that it is known whose end the process
/// met.
struct Header {
  std::size_t piece = 0;
  bool is_begun = false;
  Ending ending = Ending::returned;
  int value = 0;
  std::size_t message_bytes = 0, output_bytes = 0, error_bytes = 0;
};

struct Piece {
  Ending ending = Ending::returned;
  int value = 0;
  std::string message, output, error;
};

[[noreturn]] void fail(const char* what) {
  throw InternalError(fmt::format("{}: {}", what, std::generic_category().message(errno)));
}

/// Which piece is taken next, by all processes.
class Counter {
 public:
  Counter() {
    void* memory =
        ::mmap(nullptr, sizeof(std::atomic<std::size_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory that processes share");
    next_ = new (memory) std::atomic<std::size_t>(0);
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;
  ~Counter() { ::munmap(next_, sizeof(std::atomic<std::size_t>)); }
  std::size_t take() { return next_->fetch_add(1); }
  void end(std::size_t count) { next_->store(count); }

 private:
  std::atomic<std::size_t>* next_;
};

void write_all(int file, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) std::_Exit(1);  // nobody reads any more
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

/// A standard stream of a process, kept in memory until a piece is done.
class Kept {
 public:
  explicit Kept(int stream) : memory_(::memfd_create("output", 0)) {
    if (memory_ < 0 || ::dup2(memory_, stream) < 0) std::_Exit(1);
  }
  /// What came since the last call.
  std::string taken() const {
    std::string text(static_cast<std::size_t>(std::max<off_t>(::lseek(memory_, 0, SEEK_END), 0)), '\0');
    if (::pread(memory_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) std::_Exit(1);
    if (::ftruncate(memory_, 0) != 0 || ::lseek(memory_, 0, SEEK_SET) != 0) std::_Exit(1);
    return text;
  }

 private:
  int memory_;
};

Piece done(std::size_t piece, const std::function<int(std::size_t)>& work) {
  try {
    return {.value = work(piece)};
  } catch (const UserError& e) {
    return {.ending = Ending::user_error, .message = e.what()};
  } catch (const Unsupported& e) {
    return {.ending = Ending::unsupported, .message = e.what()};
  } catch (const OutOfMemory& e) {
    return {.ending = Ending::out_of_memory, .message = e.what()};
  } catch (const std::exception& e) {
    return {.ending = Ending::other_error, .message = e.what()};
  }
}

[[noreturn]] void work_through(std::size_t count, const std::function<int(std::size_t)>& work, Counter& counter,
                               int pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // without who reads what it does there is nothing to do
  const Kept output(STDOUT_FILENO), error(STDERR_FILENO);
  for (std::size_t piece = counter.take(); piece < count; piece = counter.take()) {
    const Header begun{.piece = piece, .is_begun = true};
    write_all(pipe, &begun, sizeof begun);
    Piece result = done(piece, work);
    flush_output();
    std::fflush(stderr);
    result.output = output.taken();
    result.error = error.taken();
    const Header header{.piece = piece,
                        .ending = result.ending,
                        .value = result.value,
                        .message_bytes = result.message.size(),
                        .output_bytes = result.output.size(),
                        .error_bytes = result.error.size()};
    write_all(pipe, &header, sizeof header);
    for (const std::string* text : {&result.message, &result.output, &result.error}) {
      write_all(pipe, text->data(), text->size());
    }
  }
  std::_Exit(0);
}

/// One process, as its parent sees it.
struct Worker {
  pid_t process = -1;
  int pipe = -1;
  std::string read{};  ///< and not yet understood
  std::optional<std::size_t> piece{};
};

class Processes {
 public:
  Processes(std::string_view name, std::size_t count, int num_processes, const std::function<int(std::size_t)>& work)
      : name_(name), count_(count) {
    flush_output();  // or each process would have it to say
    std::fflush(stderr);
    for (int i = 0; i < num_processes; ++i) start(work);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (Worker& worker : workers_) {
      ::kill(worker.process, SIGKILL);
      end(worker);
    }
  }

  /// The pieces that have ended since the last call, after at least one more has; none: all processes have.
  std::vector<std::pair<std::size_t, Piece>> more() {
    std::vector<std::pair<std::size_t, Piece>> found;
    while (found.empty() && !workers_.empty()) {
      std::vector<pollfd> pipes;
      for (const Worker& worker : workers_) pipes.push_back({.fd = worker.pipe, .events = POLLIN, .revents = 0});
      if (::poll(pipes.data(), pipes.size(), -1) < 0 && errno != EINTR) fail("poll");
      for (std::size_t i = pipes.size(); i-- > 0;) {
        if (pipes[i].revents == 0) continue;
        Worker& worker = workers_[i];
        const bool has_ended = !read_more(worker);
        understand(worker, found);
        if (!has_ended) continue;
        const int status = end(worker);
        if (worker.piece) note_death(*worker.piece, status, found);
        workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return found;
  }

  void take_no_more() { counter_.end(count_); }

 private:
  void start(const std::function<int(std::size_t)>& work) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) fail("no pipe");
    const pid_t process = ::fork();
    if (process < 0) fail("no process");
    if (process == 0) {
      ::close(ends[0]);
      work_through(count_, work, counter_, ends[1]);
    }
    ::close(ends[1]);
    workers_.push_back({.process = process, .pipe = ends[0]});
  }

  static bool read_more(Worker& worker) {
    std::array<char, 65536> bytes{};
    const ssize_t num = ::read(worker.pipe, bytes.data(), bytes.size());
    if (num < 0 && errno == EINTR) return true;
    if (num <= 0) return false;
    worker.read.append(bytes.data(), static_cast<std::size_t>(num));
    return true;
  }

  static void understand(Worker& worker, std::vector<std::pair<std::size_t, Piece>>& found) {
    Header header;
    while (worker.read.size() >= sizeof header) {
      std::memcpy(&header, worker.read.data(), sizeof header);
      const std::size_t bytes = sizeof header + header.message_bytes + header.output_bytes + header.error_bytes;
      if (worker.read.size() < bytes) return;
      worker.piece.reset();
      if (header.is_begun) {
        worker.piece = header.piece;
      } else {
        auto text = [&, at = sizeof header](std::size_t size) mutable {
          return worker.read.substr(std::exchange(at, at + size), size);
        };
        Piece piece{.ending = header.ending, .value = header.value};
        piece.message = text(header.message_bytes);
        piece.output = text(header.output_bytes);
        piece.error = text(header.error_bytes);
        found.emplace_back(header.piece, std::move(piece));
      }
      worker.read.erase(0, bytes);
    }
  }

  void note_death(std::size_t piece, int status, std::vector<std::pair<std::size_t, Piece>>& found) const {
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
                                : fmt::format("exit code {}", WEXITSTATUS(status));
    found.emplace_back(piece, Piece{.ending = Ending::other_error,
                                    .message = fmt::format("the process of {} {} ended with {}", name_, piece, how)});
  }

  static int end(Worker& worker) {
    ::close(worker.pipe);
    int status = 0;
    while (::waitpid(worker.process, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

  std::string name_;
  std::size_t count_;
  Counter counter_;
  std::vector<Worker> workers_;
};

void say_all_of(const Piece& piece, const std::function<void()>& is_said) {
  if (!piece.output.empty() || !piece.error.empty()) is_said();
  put_output(piece.output);
  flush_output();
  put_error(piece.error);
}

[[noreturn]] void throw_error_of(const Piece& piece) {
  if (piece.ending == Ending::user_error) throw UserError(piece.message);
  if (piece.ending == Ending::unsupported) throw Unsupported(piece.message);
  if (piece.ending == Ending::out_of_memory) throw OutOfMemory(piece.message);
  throw std::runtime_error(piece.message);
}

}  // namespace

std::vector<int> in_processes(std::string_view name, std::size_t count, int num_processes,
                              const std::function<int(std::size_t)>& work,
                              const std::function<void(std::size_t)>& is_done, const std::function<void()>& is_said) {
  std::vector<int> values;
  const auto wanted = std::min(count, static_cast<std::size_t>(std::max(num_processes, 1)));
  if (wanted <= 1) {
    for (std::size_t piece = 0; piece < count; ++piece) {
      flush_output();
      is_done(piece);
      values.push_back(work(piece));
    }
    return values;
  }
  Processes processes(name, count, static_cast<int>(wanted), work);
  std::map<std::size_t, Piece> waiting;  // until all before them have been said
  std::size_t num_done = 0;
  is_done(num_done);
  for (auto found = processes.more(); !found.empty(); found = processes.more()) {
    for (auto& [piece, result] : found) {
      if (result.ending != Ending::returned) processes.take_no_more();
      waiting.emplace(piece, std::move(result));
    }
    num_done += found.size();
    for (auto next = waiting.find(values.size()); next != waiting.end(); next = waiting.find(values.size())) {
      if (next->second.ending != Ending::returned) break;
      say_all_of(next->second, is_said);
      values.push_back(next->second.value);
      waiting.erase(next);
    }
    is_done(num_done);
  }
  if (const auto failed = waiting.find(values.size()); failed != waiting.end()) {
    say_all_of(failed->second, is_said);
    throw_error_of(failed->second);
  }
  STRATA_INVARIANT(values.size() == count, fmt::format("{} of {} pieces of work ended", values.size(), count));
  return values;
}

}  // namespace strata
