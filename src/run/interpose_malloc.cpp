/// @file
/// malloc, free, new, delete, mmap and their relatives, counted while AllocationAccount watches and otherwise handed
/// straight to mimalloc: a Program has several small allocations an instruction, and planning makes hundreds of
/// Programs, which takes three quarters of the time that it takes with glibc's allocator. Part of the strata executable
/// alone, so that tests and sanitizers keep their own allocator. Freed bytes are told by mi_usable_size; unmapped ones
/// by their length. What is not replaced here, such as valloc, is libmimalloc's own.

#include <mimalloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

#include "run/allocation_account.hpp"

namespace {

using strata::run::allocation_account;
using strata::run::NotWatched;

bool watching() noexcept {
  return allocation_account().watching.load(std::memory_order_relaxed) && !NotWatched::is_here();
}

/// What @p allocate returns. What it maps for itself meanwhile is no allocation of its own.
template <class Allocate>
void* counted(const Allocate& allocate) noexcept {
  if (!watching()) return allocate();
  void* memory = nullptr;
  {
    const NotWatched inside;
    memory = allocate();
  }
  if (memory != nullptr) allocation_account().add(static_cast<std::int64_t>(mi_usable_size(memory)));
  return memory;
}

void count_freed(void* memory) noexcept {
  if (memory != nullptr && watching()) {
    allocation_account().remove(static_cast<std::int64_t>(mi_usable_size(memory)));
  }
}

void* counted_malloc(std::size_t size) noexcept {
  return counted([&] { return mi_malloc(size); });
}

void* counted_memalign(std::size_t alignment, std::size_t size) noexcept {
  return counted([&] { return mi_malloc_aligned(size, alignment); });
}

void* counted_memalign(std::align_val_t alignment, std::size_t size) noexcept {
  return counted_memalign(static_cast<std::size_t>(alignment), size);
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void counted_free(void* memory) noexcept {
  count_freed(memory);
  mi_free(memory);
}

#if MI_MALLOC_VERSION >= 210
constexpr mi_option_t milliseconds_until_given_back = mi_option_purge_delay;
#else
constexpr mi_option_t milliseconds_until_given_back = mi_option_decommit_delay;
#endif

/// Of what a Program has left the next one has need: the system gets it back after seconds, not at once.
const bool announced = [] {
  mi_option_set(milliseconds_until_given_back, 5000);
  allocation_account().interposed = true;
  return true;
}();

}  // namespace

extern "C" {

void* malloc(std::size_t size) { return counted_malloc(size); }

void free(void* memory) { counted_free(memory); }

void* calloc(std::size_t count, std::size_t size) {
  return counted([&] { return mi_calloc(count, size); });
}

void* realloc(void* memory, std::size_t size) {
  count_freed(memory);
  return counted([&] { return mi_realloc(memory, size); });
}

void* memalign(std::size_t alignment, std::size_t size) { return counted_memalign(alignment, size); }

void* aligned_alloc(std::size_t alignment, std::size_t size) { return counted_memalign(alignment, size); }

int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  void* memory = counted_memalign(alignment, size);
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

// All forms: libmimalloc has each, and what is not here would be that, which does not count.
using std::align_val_t;
using std::nothrow_t;
using std::size_t;

void* operator new(size_t size) { return or_throw(counted_malloc(size)); }
void* operator new[](size_t size) { return or_throw(counted_malloc(size)); }
void* operator new(size_t size, const nothrow_t& /*tag*/) noexcept { return counted_malloc(size); }
void* operator new[](size_t size, const nothrow_t& /*tag*/) noexcept { return counted_malloc(size); }
void* operator new(size_t size, align_val_t alignment) { return or_throw(counted_memalign(alignment, size)); }
void* operator new[](size_t size, align_val_t alignment) { return or_throw(counted_memalign(alignment, size)); }
void* operator new(size_t size, align_val_t alignment, const nothrow_t& /*tag*/) noexcept {
  return counted_memalign(alignment, size);
}
void* operator new[](size_t size, align_val_t alignment, const nothrow_t& /*tag*/) noexcept {
  return counted_memalign(alignment, size);
}

void operator delete(void* memory) noexcept { counted_free(memory); }
void operator delete[](void* memory) noexcept { counted_free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { counted_free(memory); }
void operator delete[](void* memory, size_t /*size*/) noexcept { counted_free(memory); }
void operator delete(void* memory, align_val_t /*alignment*/) noexcept { counted_free(memory); }
void operator delete[](void* memory, align_val_t /*alignment*/) noexcept { counted_free(memory); }
void operator delete(void* memory, size_t /*size*/, align_val_t /*alignment*/) noexcept { counted_free(memory); }
void operator delete[](void* memory, size_t /*size*/, align_val_t /*alignment*/) noexcept { counted_free(memory); }
