/// @file
/// The lock of a point's folder is taken here, and the next free attempt number.

#include "results/folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "base/console.hpp"
#include "base/error.hpp"
#include "results/status.hpp"

namespace strata::results {
namespace {

namespace fs = std::filesystem;

/// A reader that looks whether there is a holder has the lock for a moment.
constexpr std::chrono::milliseconds patience_with_readers{1000};

/// @return whether no other process can have it too. @throws UserError naming the holder.
bool lock_folder(const LockFile& lock, const std::string& folder) {
  const LockState state = lock.take(patience_with_readers);
  const FileDescriptor& file = lock.file();
  if (state == LockState::busy) {
    std::ifstream text(file.path());
    std::string holder;
    std::getline(text, holder);
    throw UserError(fmt::format("results folder {}: in use by {}; wait for it or write to another folder", folder,
                                holder.empty() ? "another process" : holder));
  }
  if (state == LockState::impossible) {
    say_error(
        "strata: results folder {}: no locks on this file system: a second job on this point would be an attempt "
        "of its own and not be refused\n",
        folder);
  }
  if (::ftruncate(file.get(), 0) != 0) {
    throw_file_error(file.path(), errno, "writing");
  }
  file.write_all(fmt::format("pid {} on {} since {}\n", ::getpid(), host_name(), to_iso_8601(unix_seconds_now())));
  return state == LockState::held;
}

/// Largest N of all files `N.<anything>`, 0 if there is none.
int last_attempt(const std::string& folder) {
  int last = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    // Nobody has made two thousand million attempts: such a number is no attempt's.
    const bool is_attempt = error == std::errc() && number < std::numeric_limits<int>::max();
    if (is_attempt && end != name.data() + name.size() && *end == '.') {
      last = std::max(last, number);
    }
  }
  return last;
}

}  // namespace

PointFolder::PointFolder(const std::string& folder) : folder_(folder) {
  try {
    fs::create_directories(folder);
    lock_ = LockFile((fs::path(folder) / "lock").string());
    is_locked_ = lock_folder(lock_, folder);
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
