/// @file
/// A broken disk for a test: loaded into a program by LD_PRELOAD, it makes the n-th call of a kind fail on files below
/// a folder, or kills the program there. What to do stands in a file of one page, which the test writes and reads again
/// (disk_faults.py) and all processes that inherit the environment share:
///
///     STRATA_DISK_FAULTS=<file>:<folder>
///
/// What was written and not synced is lost where close() or fsync() fails, as on a network file system that meets a
/// quota then: the file is empty.
///
/// The kinds are numbered as in `Kind`. All calls are counted, so that a pass without a fault says how many there are.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace {

enum Kind : std::int64_t { write_kind, close_kind, rename_kind, fsync_kind, flock_kind, num_kinds };

/// What test and program share; 64-bit little-endian numbers in this order.
struct Shared {
  std::int64_t kind;    ///< of the call that fails
  std::int64_t number;  ///< which one, from 1; 0: none
  std::int64_t error;   ///< its errno; 0: SIGKILL before it
  std::int64_t stays;   ///< not 0: all later calls of the kind fail too, as on a disk that is full
  std::int64_t hits;    ///< how many calls have failed
  std::array<std::int64_t, num_kinds> counts;
};

struct Faults {
  Shared* shared = nullptr;
  std::string folder;

  Faults() {
    const char* text = std::getenv("STRATA_DISK_FAULTS");
    const char* colon = text == nullptr ? nullptr : std::strchr(text, ':');
    if (colon == nullptr) return;
    const std::string file(text, colon);
    folder = colon + 1;
    const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    void* page = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (page == MAP_FAILED) std::abort();
    shared = static_cast<Shared*>(page);
  }
};

const Faults& faults() {
  static const Faults all;
  return all;
}

bool is_below(const char* path) {
  const std::string& folder = faults().folder;
  return std::strncmp(path, folder.c_str(), folder.size()) == 0 &&
         (path[folder.size()] == '/' || path[folder.size()] == 0);
}

bool is_below(int descriptor) {
  if (faults().shared == nullptr) return false;
  std::array<char, PATH_MAX> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  return ::readlink(link.c_str(), path.data(), path.size() - 1) > 0 && is_below(path.data());
}

/// @return whether this call fails; errno is set then.
bool fails(Kind kind) {
  Shared& s = *faults().shared;
  const std::int64_t count = std::atomic_ref(s.counts[static_cast<std::size_t>(kind)]).fetch_add(1) + 1;
  if (s.kind != kind || s.number == 0 || count < s.number || (s.stays == 0 && count > s.number)) return false;
  std::atomic_ref(s.hits).fetch_add(1);
  if (s.error == 0) ::kill(::getpid(), SIGKILL);
  errno = static_cast<int>(s.error);
  return true;
}

/// Files with something that a disk need not have yet, by inode: HDF5 writes by one descriptor, and another syncs.
class Unsynced {
 public:
  void written(int descriptor) {
    const std::scoped_lock lock(mutex_);
    files_.insert(key(descriptor));
  }
  void synced(int descriptor) {
    const std::scoped_lock lock(mutex_);
    files_.erase(key(descriptor));
  }
  void lose(int descriptor) {
    const std::scoped_lock lock(mutex_);
    if (files_.erase(key(descriptor)) > 0) static_cast<void>(::ftruncate(descriptor, 0));
  }

 private:
  static std::pair<dev_t, ino_t> key(int descriptor) {
    struct stat info {};
    ::fstat(descriptor, &info);
    return {info.st_dev, info.st_ino};
  }
  std::mutex mutex_;
  std::set<std::pair<dev_t, ino_t>> files_;
};

Unsynced& unsynced() {
  static Unsynced files;
  return files;
}

/// write(2) or pwrite(2), as @p real does it.
template <typename Real>
ssize_t write_with_faults(int descriptor, const Real& real) {
  if (!is_below(descriptor)) return real();
  if (fails(write_kind)) return -1;
  unsynced().written(descriptor);
  return real();
}

/// The function that this library stands in front of.
template <typename Function>
Function next(Function /*of this type*/, const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

/// `/proc` names what an open descriptor is of, but a name for rename(2) may be relative.
bool name_is_below(const char* path) {
  if (faults().shared == nullptr) return false;
  if (path[0] == '/') return is_below(path);
  std::array<char, PATH_MAX> here{};
  return ::getcwd(here.data(), here.size()) != nullptr && is_below((std::string(here.data()) + "/" + path).c_str());
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t size) {
  static const auto real = next(&::write, "write");
  return write_with_faults(descriptor, [&] { return real(descriptor, data, size); });
}

ssize_t pwrite(int descriptor, const void* data, size_t size, off_t at) {
  static const auto real = next(&::pwrite, "pwrite");
  return write_with_faults(descriptor, [&] { return real(descriptor, data, size, at); });
}

ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t at) {
  static const auto real = next(&::pwrite64, "pwrite64");
  return write_with_faults(descriptor, [&] { return real(descriptor, data, size, at); });
}

/// A descriptor is closed even where close(2) reports an error.
int close(int descriptor) {
  static const auto real = next(&::close, "close");
  // Files that are read close too, and never tell of lost writes.
  const bool is_written = faults().shared != nullptr && (::fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY;
  const bool fault = is_written && is_below(descriptor) && fails(close_kind);
  const int error = errno;
  if (fault) unsynced().lose(descriptor);
  const int result = real(descriptor);
  if (fault) errno = error;
  return fault ? -1 : result;
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next(&::rename, "rename");
  return name_is_below(to) && fails(rename_kind) ? -1 : real(from, to);
}

int fsync(int descriptor) {
  static const auto real = next(&::fsync, "fsync");
  if (!is_below(descriptor)) return real(descriptor);
  if (fails(fsync_kind)) {
    const int error = errno;
    unsynced().lose(descriptor);
    errno = error;
    return -1;
  }
  unsynced().synced(descriptor);
  return real(descriptor);
}

/// Under another name here, since `flock` is a type too.
int flock_on_a_broken_disk(int descriptor, int operation) noexcept __asm__("flock");
int flock_on_a_broken_disk(int descriptor, int operation) noexcept {
  static const auto real = reinterpret_cast<int (*)(int, int)>(::dlsym(RTLD_NEXT, "flock"));
  return is_below(descriptor) && fails(flock_kind) ? -1 : real(descriptor, operation);
}
}
