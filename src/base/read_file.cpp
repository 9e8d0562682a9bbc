#include "base/read_file.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"

namespace strata {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw UserError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  if (std::filesystem::is_directory(path)) {  // opens, and fails when it is read
    throw UserError(fmt::format("{}: cannot be read: is a directory", path));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace strata
