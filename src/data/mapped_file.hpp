#pragma once

/// @file
/// A file mapped read-only. Mapping, not reading: ranks of one node share the page cache's copy, nothing is allocated
/// in a step, and a file larger than memory trains. The file must not be truncated while it is mapped (SIGBUS).

#include <cstdint>
#include <span>
#include <string>

namespace strata::data {

/// Owns the mapping of one regular file. Movable, so that datasets can hold vectors of it.
class MappedFile {
 public:
  /// @throws UserError with the path and the system's reason: missing, unreadable, not a regular file, empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size_bytes() const { return static_cast<std::int64_t>(bytes_.size()); }
  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::uint8_t> bytes_;
};

/// FNV-1a (64 bits) over the size and at most 1 MiB of content: all of a file up to that size, else 256 blocks of 4 KiB
/// spread evenly from the first to the last. Tells which data a result was made with; it does not detect every edit.
std::uint64_t sampled_checksum(const MappedFile& file);

}  // namespace strata::data
