#pragma once

/// @file
/// The process's one oneDNN engine and stream, and primitives bound to their arguments. A primitive is built once for a
/// key of dims, types, flags and threads and found again afterwards; caches are per thread, so a call takes no lock and
/// shares no memory object.

#include <array>
#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtype.hpp"

namespace strata::cpu {

const dnnl::engine& dnnl_engine();
dnnl::stream& dnnl_stream();

/// @throws InternalError unless @p dtype is f32 or bf16.
dnnl::memory::data_type dnnl_type(DType dtype);

/// Attributes with the scratchpad in the caller's hands: no primitive of ours allocates while it runs.
dnnl::primitive_attr user_scratchpad();

/// Threads that a kernel called here would use: the OpenMP maximum, one inside a parallel region.
int kernel_threads();

namespace detail {
[[noreturn]] void refuse_dnnl(const std::string& what, const dnnl::error& error);
}

/// Builds something of oneDNN. @throws Unsupported "oneDNN cannot <what>: …" where it refuses.
template <typename Build>
auto dnnl_build(const std::string& what, Build&& build) {
  try {
    return build();
  } catch (const dnnl::error& error) {
    detail::refuse_dnnl(what, error);
  }
}

/// A primitive with one memory object for each argument; running it sets their addresses and nothing else.
class BoundPrimitive {
 public:
  using Argument = std::pair<int, dnnl::memory::desc>;

  BoundPrimitive() = default;
  /// @param arguments (DNNL_ARG_…, descriptor) in the order in which run() takes their addresses.
  BoundPrimitive(dnnl::primitive primitive, std::initializer_list<Argument> arguments,
                 const dnnl::memory::desc& scratchpad);

  /// False for the empty one, which stands for "nothing to do" (a reorder between equal layouts).
  explicit operator bool() const { return static_cast<bool>(primitive_); }
  std::int64_t scratchpad_bytes() const { return scratchpad_bytes_; }

  /// @param addresses one for each argument; inputs are not written.
  /// @param scratchpad scratchpad_bytes() bytes, 64-byte aligned.
  void run(std::initializer_list<const void*> addresses, std::byte* scratchpad);

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;  // the scratchpad is the last
  std::vector<dnnl_exec_arg_t> arguments_;
  std::int64_t scratchpad_bytes_ = 0;
};

/// A copy from one layout to another, empty where they are equal and @p add is off. With @p add the destination is
/// added to.
BoundPrimitive make_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to, bool add = false);

/// Everything that a primitive depends on, as integers; unused places are 0.
using PrimitiveKey = std::array<std::int64_t, 24>;

struct PrimitiveKeyHash {
  std::size_t operator()(const PrimitiveKey& key) const;
};

/// Keeps what was built for a key. One instance a thread: declare it thread_local.
template <typename Value>
class PrimitiveCache {
 public:
  template <typename Build>
  Value& find_or_build(const PrimitiveKey& key, Build&& build) {
    const auto found = values_.find(key);
    return found != values_.end() ? found->second : values_.emplace(key, build()).first->second;
  }

 private:
  std::unordered_map<PrimitiveKey, Value, PrimitiveKeyHash> values_;
};

/// Cuts a workspace into consecutive 64-byte aligned pieces; the same calls on a null start measure it.
class WorkspaceCutter {
 public:
  WorkspaceCutter() = default;
  explicit WorkspaceCutter(std::span<std::byte> workspace);

  /// The next @p num_bytes bytes; null when measuring.
  std::byte* take(std::int64_t num_bytes);
  std::int64_t taken_bytes() const { return taken_bytes_; }

 private:
  std::span<std::byte> workspace_;
  std::int64_t taken_bytes_ = 0;
  bool measuring_ = true;
};

}  // namespace strata::cpu
