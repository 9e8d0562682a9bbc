#pragma once

/// @file
/// Zeroed memory that some ranks of one node share. The decision: a memfd that the others open through the creator's
/// /proc entry, not MPI_Win_allocate_shared. MPICH hands out *unshared* memory without an error when it has been told
/// that every rank is a node of its own (MPIR_CVAR_NOLOCAL=1, needed for a slow wire between namespaces of one host);
/// /dev/shm is 64 MB in many containers and keeps the files of killed jobs.

#include <cstddef>
#include <cstdint>

namespace strata::comm {

class SharedSegment {
 public:
  SharedSegment() = default;
  /// A new segment of zeroes; pages are taken when they are touched.
  static SharedSegment create(std::int64_t num_bytes);
  /// The segment that process @p process_id created and knows as @p descriptor.
  static SharedSegment open(int process_id, int descriptor, std::int64_t num_bytes);
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  std::int64_t size_bytes() const { return size_bytes_; }
  /// Pages that any member has touched; the others do not exist. Allocates nothing.
  std::int64_t touched_bytes() const;
  /// Creator only, until close_descriptor(): call that once every member has opened the segment.
  int descriptor() const { return descriptor_; }
  void close_descriptor();

 private:
  void map(int descriptor, std::int64_t num_bytes);
  std::byte* data_ = nullptr;
  std::int64_t size_bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace strata::comm
