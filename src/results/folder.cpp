/// @file
/// The lock of a point's folder is taken here, and the next free attempt number.

#include "results/folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/error.hpp"
#include "results/status.hpp"

namespace strata::results {
namespace {

namespace fs = std::filesystem;

FileDescriptor lock_folder(const std::string& folder) {
  const std::string path = (fs::path(folder) / "lock").string();
  FileDescriptor file(path, O_RDWR | O_CREAT);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      std::ifstream text(path);
      std::string holder;
      std::getline(text, holder);
      throw UserError(fmt::format("results folder {}: in use by {}; wait for it or write to another folder", folder,
                                  holder.empty() ? "another process" : holder));
    }
    // A file system without locks: claim_attempt() alone keeps attempts apart, and a second job gets its own.
    if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP) {
      throw_file_error(path, errno, "locking");
    }
  }
  if (::ftruncate(file.get(), 0) != 0) {
    throw_file_error(path, errno, "writing");
  }
  file.write_all(fmt::format("pid {} on {} since {}\n", ::getpid(), host_name(), to_iso_8601(unix_seconds_now())));
  return file;
}

/// Largest N of all files `N.<anything>`, 0 if there is none.
int last_attempt(const std::string& folder) {
  int last = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end != name.data() + name.size() && *end == '.') {
      last = std::max(last, number);
    }
  }
  return last;
}

}  // namespace

PointFolder::PointFolder(const std::string& folder) : folder_(folder) {
  try {
    fs::create_directories(folder);
    lock_ = lock_folder(folder);
    for (attempt_ = last_attempt(folder) + 1;; ++attempt_) {
      if (auto created = FileDescriptor::create(file(".jsonl"), O_WRONLY | O_APPEND)) {
        jsonl_ = *std::move(created);
        return;
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw UserError(fmt::format("results folder {}: {}", folder, error.code().message()));
  }
}

std::string PointFolder::file(const std::string& suffix) const {
  return (fs::path(folder_) / fmt::format("{}{}", attempt_, suffix)).string();
}

}  // namespace strata::results
