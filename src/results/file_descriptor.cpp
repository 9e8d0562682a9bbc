/// @file
/// Checked POSIX calls of the results folder.

#include "results/file_descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace strata::results {

void throw_file_error(const std::string& path, int error_number, std::string_view action) {
  throw UserError(fmt::format("results folder {}: {} ({} {})", std::filesystem::path(path).parent_path().string(),
                              std::generic_category().message(error_number), action,
                              std::filesystem::path(path).filename().string()));
}

FileDescriptor::FileDescriptor(const std::string& path, int flags, unsigned mode)
    : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
  if (descriptor_ < 0) {
    throw_file_error(path, errno, "opening");
  }
}

std::optional<FileDescriptor> FileDescriptor::create(const std::string& path, int flags) {
  FileDescriptor file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), flags | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.descriptor_ < 0) {
    if (errno == EEXIST) {
      return std::nullopt;
    }
    throw_file_error(path, errno, "creating");
  }
  return file;
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void FileDescriptor::write_all(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw_file_error(path_, errno, "writing");
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void FileDescriptor::sync() const {
  if (::fsync(descriptor_) != 0) {
    throw_file_error(path_, errno, "syncing");
  }
}

void FileDescriptor::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) throw_file_error(path_, errno, "closing");
}

void replace_file(const std::string& path, std::string_view text, std::string_view suffix) {
  const std::string next = fmt::format("{}.{}", path, suffix);
  try {
    FileDescriptor file(next, O_WRONLY | O_CREAT | O_TRUNC);
    file.write_all(text);
    file.sync();
    file.close();
    rename_file(next, path);
  } catch (...) {
    ::unlink(next.c_str());
    throw;
  }
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw_file_error(to, errno, "renaming to");
  }
  // Not every file system lets a folder be synced; the rename itself has succeeded.
  const std::string folder = std::filesystem::path(to).parent_path().string();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) {
    return "unknown";
  }
  return name.data();
}

}  // namespace strata::results
