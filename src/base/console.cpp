#include "base/console.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/error.hpp"

namespace strata {
namespace {

/// errno of the first write to standard output that failed; 0: none has.
std::atomic<int> reason_of_loss{0};

void remember_loss() {
  int none = 0;
  reason_of_loss.compare_exchange_strong(none, errno);
}

}  // namespace

void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number, which is this one; open for the opposite of its use.
    static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

void put_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) remember_loss();
}

void put_error(std::string_view text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));  // there is nowhere else to say that it failed
}

void flush_output() {
  if (std::fflush(stdout) != 0) remember_loss();
}

void finish_output() {
  flush_output();
  if (reason_of_loss != 0) {
    throw UserError(
        fmt::format("standard output cannot be written: {}", std::generic_category().message(reason_of_loss)));
  }
}

}  // namespace strata
