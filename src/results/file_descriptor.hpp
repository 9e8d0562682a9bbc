#pragma once

/// @file
/// A POSIX file this object owns, and the error text of everything that writes below a results folder: it names the
/// folder, the system's reason and the file. All failures here are the user's to mend, hence UserError.

#include <optional>
#include <string>
#include <string_view>

namespace strata::results {

/// @throws UserError "results folder <folder of path>: <strerror> (<action> <path>)".
[[noreturn]] void throw_file_error(const std::string& path, int error_number, std::string_view action);

class FileDescriptor {
 public:
  FileDescriptor() = default;
  /// open(2) with O_CLOEXEC; @p mode is that of a file which it makes. @throws UserError.
  FileDescriptor(const std::string& path, int flags, unsigned mode = 0666);
  /// The file that this call created, or nothing if it exists already. @throws UserError on other failures.
  static std::optional<FileDescriptor> create(const std::string& path, int flags);
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();

  int get() const { return descriptor_; }
  const std::string& path() const { return path_; }
  /// One write(2) where the system takes it whole, which it does for regular files. @throws UserError.
  void write_all(std::string_view text) const;
  /// fsync(2). @throws UserError.
  void sync() const;
  /// close(2), which on NFS is where a full disk or quota is told. Otherwise the end of the object closes, and nobody
  /// learns of it. @throws UserError.
  void close();

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// The whole of a file, which is there with all of @p text, on disk, or as it was before: it is written beside itself,
/// as `<path>.<suffix>`, and renamed. @throws UserError; what was written beside it is then gone.
void replace_file(const std::string& path, std::string_view text, std::string_view suffix);

/// rename(2), then fsync of the folder so that the new name survives a power loss. @throws UserError.
void rename_file(const std::string& from, const std::string& to);

std::string host_name();

}  // namespace strata::results
