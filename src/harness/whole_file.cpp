#include "harness/whole_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "results/file_descriptor.hpp"

namespace strata::harness {

void write_whole(const std::filesystem::path& file, const std::string& text) {
  const std::string next = fmt::format("{}.{}", file.string(), ::getpid());
  {
    const results::FileDescriptor out(next, O_WRONLY | O_CREAT | O_TRUNC);
    out.write_all(text);
  }
  std::error_code error;
  std::filesystem::rename(next, file, error);
  if (error) results::throw_file_error(file.string(), error.value(), "renaming to");
}

}  // namespace strata::harness
