/// @file
/// A server of metadata for a test: loaded into a program by LD_PRELOAD, it counts the calls for which a parallel or
/// network file system asks its server about a name below a folder, lets each wait as long as such a server takes, and
/// knows how many waited at once. Test and programs share a file of one page, which the test writes and reads again
/// (metadata_calls.py):
///
///     STRATA_METADATA_CALLS=<file>:<folder>
///
/// The kinds are numbered as in `Kind`. A folder is listed by one call here; of large ones a server sends several
/// parts.

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

enum Kind : std::int64_t { open_kind, stat_kind, list_kind, make_kind, rename_kind, remove_kind, num_kinds };

/// What test and program share; 64-bit little-endian numbers in this order.
struct Shared {
  std::int64_t wait_us;  ///< of each call
  std::int64_t waiting;  ///< calls under way
  std::int64_t most_waiting;
  std::array<std::int64_t, num_kinds> counts;
};

struct Server {
  Shared* shared = nullptr;
  std::string folder;

  Server() {
    const char* text = std::getenv("STRATA_METADATA_CALLS");
    const char* colon = text == nullptr ? nullptr : std::strchr(text, ':');
    if (colon == nullptr) return;
    folder = colon + 1;
    // Not by open(), which is below.
    std::FILE* file = reinterpret_cast<std::FILE* (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "fopen"))(
        std::string(text, colon).c_str(), "r+");
    if (file == nullptr) std::abort();
    void* page = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, ::fileno(file), 0);
    if (page == MAP_FAILED) std::abort();
    std::fclose(file);
    shared = static_cast<Shared*>(page);
  }
};

const Server& server() {
  static const Server one;
  return one;
}

/// @p path as the system finds it from @p folder_descriptor, without a look at the disk.
std::string absolute(int folder_descriptor, const char* path) {
  if (path[0] == '/') return path;
  std::array<char, PATH_MAX> folder{};
  const std::string link =
      folder_descriptor == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(folder_descriptor);
  if (::readlink(link.c_str(), folder.data(), folder.size() - 1) <= 0) return "";
  return path[0] == 0 ? folder.data() : std::string(folder.data()) + "/" + path;
}

/// What an allocator looks at before it can allocate: no call here may allocate on its way.
bool is_of_the_system(const char* path) {
  return std::strncmp(path, "/proc/", 6) == 0 || std::strncmp(path, "/sys/", 5) == 0;
}

void ask(Kind kind, int folder_descriptor, const char* path) {
  if (path == nullptr || is_of_the_system(path) || server().shared == nullptr) return;
  const std::string whole = absolute(folder_descriptor, path);
  const std::string& folder = server().folder;
  if (!whole.starts_with(folder) || (whole.size() > folder.size() && whole[folder.size()] != '/')) return;
  Shared& s = *server().shared;
  std::atomic_ref(s.counts[static_cast<std::size_t>(kind)]).fetch_add(1);
  if (s.wait_us == 0) return;
  const std::int64_t waiting = std::atomic_ref(s.waiting).fetch_add(1) + 1;
  std::atomic_ref most(s.most_waiting);
  for (std::int64_t seen = most; seen < waiting && !most.compare_exchange_weak(seen, waiting);) {
  }
  const int error = errno;
  ::usleep(static_cast<useconds_t>(s.wait_us));
  errno = error;
  std::atomic_ref(s.waiting).fetch_sub(1);
}

/// The function that this library stands in front of.
template <typename Function>
Function next(Function /*of this type*/, const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

bool has_mode(int flags) { return (flags & (O_CREAT | __O_TMPFILE)) != 0; }

}  // namespace

// Each stands before the C library's of the same name. The library's own calls of them do not come here: what fopen()
// opens is counted once.
#define WITH_MODE(flags)              \
  mode_t mode = 0;                    \
  if (has_mode(flags)) {              \
    va_list arguments;                \
    va_start(arguments, flags);       \
    mode = va_arg(arguments, mode_t); \
    va_end(arguments);                \
  }

extern "C" {

int open(const char* path, int flags, ...) {
  static const auto real = next(&::open, "open");
  WITH_MODE(flags)
  ask(open_kind, AT_FDCWD, path);
  return real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  static const auto real = next(&::open64, "open64");
  WITH_MODE(flags)
  ask(open_kind, AT_FDCWD, path);
  return real(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  static const auto real = next(&::openat, "openat");
  WITH_MODE(flags)
  ask((flags & O_DIRECTORY) != 0 ? list_kind : open_kind, folder, path);
  return real(folder, path, flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  static const auto real = next(&::openat64, "openat64");
  WITH_MODE(flags)
  ask((flags & O_DIRECTORY) != 0 ? list_kind : open_kind, folder, path);
  return real(folder, path, flags, mode);
}

std::FILE* fopen(const char* path, const char* mode) {
  static const auto real = next(&::fopen, "fopen");
  ask(open_kind, AT_FDCWD, path);
  return real(path, mode);
}

std::FILE* fopen64(const char* path, const char* mode) {
  static const auto real = next(&::fopen64, "fopen64");
  ask(open_kind, AT_FDCWD, path);
  return real(path, mode);
}

DIR* opendir(const char* path) {
  static const auto real = next(&::opendir, "opendir");
  ask(list_kind, AT_FDCWD, path);
  return real(path);
}

int stat(const char* path, struct stat* facts) noexcept {
  static const auto real = reinterpret_cast<int (*)(const char*, struct stat*)>(::dlsym(RTLD_NEXT, "stat"));
  ask(stat_kind, AT_FDCWD, path);
  return real(path, facts);
}

int stat64(const char* path, struct stat64* facts) noexcept {
  static const auto real = reinterpret_cast<int (*)(const char*, struct stat64*)>(::dlsym(RTLD_NEXT, "stat64"));
  ask(stat_kind, AT_FDCWD, path);
  return real(path, facts);
}

int lstat(const char* path, struct stat* facts) noexcept {
  static const auto real = next(&::lstat, "lstat");
  ask(stat_kind, AT_FDCWD, path);
  return real(path, facts);
}

int lstat64(const char* path, struct stat64* facts) noexcept {
  static const auto real = next(&::lstat64, "lstat64");
  ask(stat_kind, AT_FDCWD, path);
  return real(path, facts);
}

/// Of a descriptor alone (an empty path) it asks nobody about a name.
int fstatat(int folder, const char* path, struct stat* facts, int flags) noexcept {
  static const auto real = next(&::fstatat, "fstatat");
  if (path[0] != 0) ask(stat_kind, folder, path);
  return real(folder, path, facts, flags);
}

int fstatat64(int folder, const char* path, struct stat64* facts, int flags) noexcept {
  static const auto real = next(&::fstatat64, "fstatat64");
  if (path[0] != 0) ask(stat_kind, folder, path);
  return real(folder, path, facts, flags);
}

int access(const char* path, int mode) noexcept {
  static const auto real = next(&::access, "access");
  ask(stat_kind, AT_FDCWD, path);
  return real(path, mode);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next(&::mkdir, "mkdir");
  ask(make_kind, AT_FDCWD, path);
  return real(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next(&::rename, "rename");
  ask(rename_kind, AT_FDCWD, to);
  return real(from, to);
}

int unlink(const char* path) noexcept {
  static const auto real = next(&::unlink, "unlink");
  ask(remove_kind, AT_FDCWD, path);
  return real(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static const auto real = next(&::unlinkat, "unlinkat");
  ask(remove_kind, folder, path);
  return real(folder, path, flags);
}

int rmdir(const char* path) noexcept {
  static const auto real = next(&::rmdir, "rmdir");
  ask(remove_kind, AT_FDCWD, path);
  return real(path);
}
}
