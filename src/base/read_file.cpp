#include "base/read_file.hpp"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

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
  std::string text;
  for (std::array<char, 1 << 16> block; file.read(block.data(), block.size()) || file.gcount() > 0;) {
    text.append(block.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) throw UserError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return text;
}

}  // namespace strata
