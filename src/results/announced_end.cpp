#include "results/announced_end.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace strata::results {
namespace {

// HDF5 File Format Specification, II.A: the superblock of version 0, which has no checksum.
constexpr std::array<char, 9> signature_and_version = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n', 0};
constexpr off_t end_of_file_address = 40;

}  // namespace

void announce_end(const FileDescriptor& file, std::int64_t end) {
  static_assert(std::endian::native == std::endian::little, "HDF5's numbers are little-endian");
  std::array<char, signature_and_version.size()> found{};
  const bool is_read = ::pread(file.get(), found.data(), found.size(), 0) == static_cast<ssize_t>(found.size());
  STRATA_INVARIANT(is_read && found == signature_and_version, file.path() + " is not of HDF5's first format");
  // A reader refuses a file that is shorter than it says.
  std::int64_t said = 0;
  STRATA_INVARIANT(::pread(file.get(), &said, sizeof said, end_of_file_address) == sizeof said, "a superblock");
  const auto cut = [&] {
    if (::ftruncate(file.get(), end) != 0) throw_file_error(file.path(), errno, "setting the size of");
  };
  if (end >= said) cut();
  if (::pwrite(file.get(), &end, sizeof end, end_of_file_address) != sizeof end) {
    throw_file_error(file.path(), errno, "writing");
  }
  if (end < said) cut();
}

}  // namespace strata::results
