#pragma once

/// @file
/// A lock between processes, which goes with its holder. It is a file that holds nothing else, open for writing, as
/// network file systems want it of an exclusive lock, and readable only for those who may write it: on a file that all
/// may read anybody could take a lock, and keep those waiting whose results these are.

#include <chrono>
#include <string>

#include "results/file_descriptor.hpp"

namespace strata::results {

enum class LockState {
  held,
  busy,        ///< another process has it
  impossible,  ///< this file system has no locks
};

class LockFile {
 public:
  LockFile() = default;
  /// Opens @p path, made where there is none; takes no lock yet. @throws UserError.
  explicit LockFile(const std::string& path);

  /// Tries for as long as @p patience: others may look whether there is a holder. @throws UserError.
  LockState take(std::chrono::milliseconds patience) const;

  const FileDescriptor& file() const { return file_; }

 private:
  FileDescriptor file_;
};

}  // namespace strata::results
