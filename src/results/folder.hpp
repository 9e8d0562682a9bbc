#pragma once

/// @file
/// The folder of one point: who may write to it now, and which attempt number is free. Two guards: a lock held while an
/// attempt runs, which turns a stray second job into a message, and exclusive creation of the attempt's first file,
/// which keeps old attempts whole even where a file system has no locks.

#include <string>
#include <utility>

#include "results/file_descriptor.hpp"
#include "results/lock_file.hpp"

namespace strata::results {

class PointFolder {
 public:
  /// Create @p folder and those above it, lock it, claim the next attempt by creating its JSONL file.
  /// @throws UserError when it cannot be created or written, or is locked: names the holder's pid, host and start.
  explicit PointFolder(const std::string& folder);

  int attempt() const { return attempt_; }
  /// No other process can be at work in this folder: false where the file system has no locks.
  bool is_locked() const { return is_locked_; }
  /// `<folder>/<attempt><suffix>`
  std::string file(const std::string& suffix) const;
  /// Open for appending; empty.
  FileDescriptor take_jsonl() { return std::move(jsonl_); }

 private:
  std::string folder_;
  LockFile lock_;
  bool is_locked_ = false;
  FileDescriptor jsonl_;
  int attempt_ = 0;
};

}  // namespace strata::results
