#pragma once

/// @file
/// A folder of a test's own, removed with everything in it, and files written into it byte by byte.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace strata::data {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-data-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("mkdtemp " + pattern);
    }
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(const std::string& name) const { return (path_ / name).string(); }

  template <typename T>
  std::string write(const std::string& name, const std::vector<T>& values) const {
    return write(name, std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream stream(path_ / name, std::ios::binary);
    stream << bytes;
    stream.close();
    if (!stream) {
      throw std::runtime_error("cannot write " + name);
    }
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

/// The text of the UserError that `action` throws; a test failure when it throws none.
template <typename Action>
std::string user_error(const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError";
  return {};
}

}  // namespace strata::data
