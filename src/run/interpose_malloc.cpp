/// @file
/// malloc, free, mmap and their relatives, counted while AllocationAccount watches and otherwise handed straight to
/// glibc. Part of the strata executable alone, so that tests and sanitizers keep their own allocator. Freed bytes are
/// told by malloc_usable_size; unmapped ones by their length.

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "run/allocation_account.hpp"

extern "C" {
void* __libc_malloc(std::size_t size);
void __libc_free(void* memory);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

using strata::run::allocation_account;
using strata::run::NotWatched;

bool watching() noexcept {
  return allocation_account().watching.load(std::memory_order_relaxed) && !NotWatched::is_here();
}

void* counted(void* memory) noexcept {
  if (memory != nullptr && watching()) {
    allocation_account().add(static_cast<std::int64_t>(malloc_usable_size(memory)));
  }
  return memory;
}

void count_freed(void* memory) noexcept {
  if (memory != nullptr && watching()) {
    allocation_account().remove(static_cast<std::int64_t>(malloc_usable_size(memory)));
  }
}

const bool announced = [] {
  allocation_account().interposed = true;
  return true;
}();

}  // namespace

extern "C" {

void* malloc(std::size_t size) { return counted(__libc_malloc(size)); }

void free(void* memory) {
  count_freed(memory);
  __libc_free(memory);
}

void* calloc(std::size_t count, std::size_t size) { return counted(__libc_calloc(count, size)); }

void* realloc(void* memory, std::size_t size) {
  count_freed(memory);
  return counted(__libc_realloc(memory, size));
}

void* memalign(std::size_t alignment, std::size_t size) { return counted(__libc_memalign(alignment, size)); }

void* aligned_alloc(std::size_t alignment, std::size_t size) { return counted(__libc_memalign(alignment, size)); }

int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  void* memory = counted(__libc_memalign(alignment, size));
  if (memory == nullptr) {
    return ENOMEM;
  }
  *result = memory;
  return 0;
}

void* mmap(void* address, std::size_t length, int protection, int flags, int file, off_t offset) noexcept {
  const auto result = syscall(SYS_mmap, address, length, protection, flags, file, offset);
  if (result == -1) {
    return MAP_FAILED;
  }
  if (watching()) {
    allocation_account().add(static_cast<std::int64_t>(length));
  }
  return reinterpret_cast<void*>(result);
}

int munmap(void* address, std::size_t length) noexcept {
  if (watching()) {
    allocation_account().remove(static_cast<std::int64_t>(length));
  }
  return static_cast<int>(syscall(SYS_munmap, address, length));
}

}  // extern "C"
