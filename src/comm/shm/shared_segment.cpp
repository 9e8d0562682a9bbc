/// @file
/// A segment is made with memfd_create, so that it has no name to leave behind, and opened by others through
/// /proc/<pid>/fd.

#include "comm/shm/shared_segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace strata::comm {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw CommunicationError(fmt::format("shared memory: {}: {}", what, std::generic_category().message(errno)));
}

}  // namespace

SharedSegment SharedSegment::create(std::int64_t num_bytes) {
  SharedSegment segment;
  segment.descriptor_ = memfd_create("strata", MFD_CLOEXEC);
  if (segment.descriptor_ < 0) {
    fail("memfd_create");
  }
  if (ftruncate(segment.descriptor_, num_bytes) != 0) {
    fail(fmt::format("ftruncate to {} bytes", num_bytes));
  }
  segment.map(segment.descriptor_, num_bytes);
  return segment;
}

SharedSegment SharedSegment::open(int process_id, int descriptor, std::int64_t num_bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", process_id, descriptor);
  const int mine = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (mine < 0) {
    fail(fmt::format("cannot open {} (do the ranks of this node share one process namespace and user?)", path));
  }
  SharedSegment segment;
  segment.descriptor_ = mine;
  segment.map(mine, num_bytes);
  segment.close_descriptor();
  return segment;
}

void SharedSegment::map(int descriptor, std::int64_t num_bytes) {
  void* address = mmap(nullptr, static_cast<std::size_t>(num_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) {
    fail(fmt::format("mmap of {} bytes", num_bytes));
  }
  data_ = static_cast<std::byte*>(address);
  size_bytes_ = num_bytes;
}

std::int64_t SharedSegment::touched_bytes() const {
  const std::int64_t page_bytes = sysconf(_SC_PAGESIZE);
  std::array<unsigned char, 1024> resident;
  const auto chunk_bytes = static_cast<std::int64_t>(resident.size()) * page_bytes;
  std::int64_t num_pages = 0;
  for (std::int64_t begin = 0; begin < size_bytes_; begin += chunk_bytes) {
    const std::int64_t num_bytes = std::min(chunk_bytes, size_bytes_ - begin);
    if (mincore(data_ + begin, static_cast<std::size_t>(num_bytes), resident.data()) != 0) {
      fail("mincore");
    }
    const std::int64_t pages_here = (num_bytes + page_bytes - 1) / page_bytes;
    num_pages += std::count_if(resident.begin(), resident.begin() + pages_here,
                               [](unsigned char page) { return (page & 1U) != 0; });
  }
  return num_pages * page_bytes;
}

void SharedSegment::close_descriptor() {
  if (descriptor_ >= 0) {
    close(descriptor_);
    descriptor_ = -1;
  }
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedSegment::~SharedSegment() {
  close_descriptor();
  if (data_ != nullptr) {
    munmap(data_, static_cast<std::size_t>(size_bytes_));
  }
}

}  // namespace strata::comm
