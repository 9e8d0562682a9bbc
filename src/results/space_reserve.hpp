#pragma once

/// @file
/// Disk space claimed ahead of HDF5's writes. HDF5 meets a full disk in the middle of a flush, with half of its
/// metadata written; we meet it here, before it writes, and the file stays as it was.

#include <cstdint>
#include <utility>

#include "results/file_descriptor.hpp"

namespace strata::results {

class SpaceReserve {
 public:
  /// For @p file, open for writing. Claims @p step_bytes at a time; 0 switches the reserve off.
  SpaceReserve(FileDescriptor file, std::int64_t step_bytes) : file_(std::move(file)), step_bytes_(step_bytes) {}

  /// When this returns, @p bytes beyond @p end, where the file ends now, belong to the file, whose size does not
  /// change. On file systems that cannot do this nothing is claimed, and a full disk is found when HDF5 writes. A flush
  /// of HDF5 cuts the file at its end and so gives the claim back: claim again after each. @throws UserError: disk
  /// full, quota.
  void claim(std::int64_t end, std::int64_t bytes);

  /// Give back what lies beyond the file's end. Call when HDF5 has closed it. @returns false if the system refused,
  /// which loses nothing but the space.
  bool release() const noexcept;

  const FileDescriptor& file() const { return file_; }

 private:
  FileDescriptor file_;
  std::int64_t step_bytes_;
};

}  // namespace strata::results
