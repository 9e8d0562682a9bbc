#pragma once

/// @file
/// What every fuzz target is written with. A target hands bytes to the function that strata itself calls and takes one
/// answer besides success: a UserError that says where the input is wrong. Everything else ends the process.

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.hpp"

namespace strata::fuzz {

using Bytes = std::span<const std::uint8_t>;
using Target = void (*)(Bytes);

inline std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Ends the process: what libFuzzer calls a crash and ctest a failure.
[[noreturn]] inline void found(std::string_view what) {
  fmt::print(stderr, "finding: {}\n", what);
  std::fflush(stderr);
  std::abort();
}

inline void require(bool condition, std::string_view what) {
  if (!condition) found(what);
}

/// Whether @p message has @p place in it. A place that ends in a colon is a file's name, and a line's number follows;
/// "column " and "line " are followed by a number too.
inline bool names(std::string_view message, std::string_view place) {
  const bool is_numbered = place.ends_with(':') || place.ends_with(' ');
  for (std::size_t at = message.find(place); at != std::string_view::npos; at = message.find(place, at + 1)) {
    const std::size_t behind = at + place.size();
    if (!is_numbered || (behind < message.size() && message[behind] >= '0' && message[behind] <= '9')) return true;
  }
  return false;
}

/// What @p action returns; nothing where it refuses the input with a message that names @p place.
template <class Action>
auto unless_refused(std::string_view place, const Action& action) -> std::optional<decltype(action())> {
  try {
    return action();
  } catch (const UserError& error) {
    require(names(error.what(), place), fmt::format("a message without `{}`: {}", place, error.what()));
#ifdef STRATA_FUZZ_REPLAY
    fmt::print("  refused: {}\n", std::string_view(error.what()).substr(0, 200));
#endif
    return std::nullopt;
  }
}

/// A folder of this process's own, gone with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "strata-fuzz-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "no folder for inputs");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A file that is nowhere but in memory, for readers that take a path.
class FileInMemory {
 public:
  explicit FileInMemory(Bytes bytes) : descriptor_(::memfd_create("input", 0)) {
    for (Bytes rest = bytes; !rest.empty();) {
      const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
      if (written <= 0) found("no memory for the input");
      rest = rest.subspan(static_cast<std::size_t>(written));
    }
    path_ = fmt::format("/proc/self/fd/{}", descriptor_);
  }
  ~FileInMemory() { ::close(descriptor_); }
  FileInMemory(const FileInMemory&) = delete;
  FileInMemory& operator=(const FileInMemory&) = delete;
  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

/// Numbers taken off the front of the input, for what a target decides besides the bytes it hands on.
class Choices {
 public:
  explicit Choices(Bytes bytes) : rest_(bytes) {}
  /// 0 … count - 1.
  int of(int count) {
    if (rest_.empty()) return 0;
    const int chosen = rest_.front() % count;
    rest_ = rest_.subspan(1);
    return chosen;
  }
  Bytes rest() const { return rest_; }

 private:
  Bytes rest_;
};

/// Targets by name, where all of them are one executable.
inline std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> by_name;
  return by_name;
}

}  // namespace strata::fuzz

/// Begins the function of target @p name, which takes `Bytes bytes`: the one that libFuzzer calls or, where
/// STRATA_FUZZ_REPLAY is defined, one among those of replay.cpp.
#ifdef STRATA_FUZZ_REPLAY
#define STRATA_FUZZ_TARGET(name)                                                                       \
  static void name##_input(::strata::fuzz::Bytes bytes);                                               \
  static const bool name##_is_entered = ::strata::fuzz::targets().emplace(#name, name##_input).second; \
  static void name##_input(::strata::fuzz::Bytes bytes)
#else
#define STRATA_FUZZ_TARGET(name)                                                      \
  static void name##_input(::strata::fuzz::Bytes bytes);                              \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    name##_input({data, size});                                                       \
    return 0;                                                                         \
  }                                                                                   \
  static void name##_input(::strata::fuzz::Bytes bytes)
#endif
