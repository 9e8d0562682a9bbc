#pragma once

/// @file
/// From a DType at run time to a storage type at compile time, and how elementwise kernels share a tensor out over
/// threads.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace strata::cpu {

/// Calls body.operator()<float>() or body.operator()<bf16>(). @throws InternalError for any other type.
template <typename Body>
void with_storage(DType dtype, Body&& body) {
  if (dtype == DType::f32) {
    body.template operator()<float>();
    return;
  }
  STRATA_INVARIANT(dtype == DType::bf16, fmt::format("a floating-point tensor, not {}", to_string(dtype)));
  body.template operator()<bf16>();
}

/// @throws InternalError if the caller's workspace is smaller than the kernel said.
inline void require_workspace(std::span<std::byte> workspace, std::int64_t needed_bytes, std::string_view kernel) {
  STRATA_INVARIANT(static_cast<std::int64_t>(workspace.size()) >= needed_bytes,
                   fmt::format("{} needs {} bytes of workspace, got {}", kernel, needed_bytes, workspace.size()));
}

/// Elements that a thread takes at a time: a multiple of every vector width, small enough for the first-level cache.
inline constexpr std::int64_t chunk_elements = 4096;

/// Calls body(begin, count) for consecutive chunks of n elements on the OpenMP threads. Chunks depend on n alone.
template <typename Body>
void for_chunks(std::int64_t n, Body&& body) {
  const std::int64_t num_chunks = (n + chunk_elements - 1) / chunk_elements;
#pragma omp parallel for schedule(static) if (num_chunks > 4)
  for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    const std::int64_t begin = chunk * chunk_elements;
    body(begin, std::min(chunk_elements, n - begin));
  }
}

}  // namespace strata::cpu
