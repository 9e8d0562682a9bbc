#include "results/lock_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace strata::results {
namespace {

constexpr std::chrono::milliseconds between_tries{5};

/// For those who may write, and nobody else, also where an older file is readable for all.
void let_writers_alone_read(const FileDescriptor& file) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || info.st_uid != ::geteuid()) return;
  const mode_t may_write = info.st_mode & 0222;
  const mode_t wanted = may_write | may_write << 1;  // the bit of reading stands left of that of writing
  if ((info.st_mode & 0777) == wanted) return;
  // A file system without modes refuses: the lock holds there all the same.
  static_cast<void>(::fchmod(file.get(), wanted));
}

}  // namespace

LockFile::LockFile(const std::string& path) : file_(path, O_RDWR | O_CREAT, 0622) { let_writers_alone_read(file_); }

LockState LockFile::take(std::chrono::milliseconds patience) const {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return LockState::impossible;
    if (errno != EWOULDBLOCK && errno != EINTR) throw_file_error(file_.path(), errno, "locking");
    if (std::chrono::steady_clock::now() >= end) return LockState::busy;
    std::this_thread::sleep_for(between_tries);
  }
  return LockState::held;
}

}  // namespace strata::results
