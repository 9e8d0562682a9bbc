/// @file
/// open, fstat, mmap: every failure is the user's file and says so.

#include "data/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace strata::data {
namespace {

std::string reason(int error_number) { return std::generic_category().message(error_number); }

/// Closes a descriptor on every path; a mapping outlives its descriptor.
struct Descriptor {
  int number;
  ~Descriptor() { ::close(number); }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO by mistake must fail below as "not a regular file", not wait for a writer.
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) {
    throw UserError(fmt::format("cannot open data file {}: {}", path, reason(errno)));
  }
  const Descriptor descriptor{number};
  struct stat status {};
  if (::fstat(descriptor.number, &status) != 0) {
    throw UserError(fmt::format("cannot read the size of data file {}: {}", path, reason(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    throw UserError(fmt::format("data file {} is not a regular file", path));
  }
  if (status.st_size == 0) {
    throw UserError(fmt::format("data file {} is empty (0 bytes)", path));
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.number, 0);
  if (address == MAP_FAILED) {
    throw UserError(fmt::format("cannot map data file {} ({} bytes): {}", path, size, reason(errno)));
  }
  bytes_ = {static_cast<const std::uint8_t*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

std::uint64_t sampled_checksum(const MappedFile& file) {
  constexpr std::size_t num_blocks = 256;
  constexpr std::size_t block_bytes = 4096;
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&hash](std::span<const std::uint8_t> bytes) {
    for (const std::uint8_t byte : bytes) {
      hash = (hash ^ byte) * 0x100000001b3ULL;
    }
  };
  const std::span<const std::uint8_t> bytes = file.bytes();
  std::uint64_t size = bytes.size();
  for (int i = 0; i < 8; ++i, size >>= 8U) {
    hash = (hash ^ (size & 0xffU)) * 0x100000001b3ULL;
  }
  if (bytes.size() <= num_blocks * block_bytes) {
    mix(bytes);
    return hash;
  }
  const std::size_t last_start = bytes.size() - block_bytes;
  const std::size_t stride = last_start / (num_blocks - 1);
  for (std::size_t i = 0; i + 1 < num_blocks; ++i) {
    mix(bytes.subspan(i * stride, block_bytes));
  }
  mix(bytes.subspan(last_start, block_bytes));
  return hash;
}

}  // namespace strata::data
