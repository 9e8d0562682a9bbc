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
#include <vector>

#include "base/dtype.hpp"
#include "exec/cpu/kernels/f32_copy.hpp"

namespace strata::cpu {

/// Holds oneDNN to instruction_set(), where that is limited. Whatever asks oneDNN anything calls it first.
void limit_dnnl();

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

/// oneDNN counts in 32 bits in many places, and divides by what is left of a larger size.
/// @throws Unsupported "oneDNN cannot <what>: …" where one of @p dims has more.
void require_32_bits(const std::string& what, std::initializer_list<std::int64_t> dims);

/// What a primitive does with an argument; `update` is the destination of a sum.
enum class Access : std::uint8_t { read, write, update };

/// A primitive with one memory object for each argument; running it sets their addresses and nothing else, but where
/// oneDNN takes no bf16: there it also converts bf16 arguments from and to f32 copies in the scratchpad.
class BoundPrimitive {
 public:
  struct Argument {
    int index;                  ///< DNNL_ARG_…
    dnnl::memory::desc stored;  ///< the primitive is built for computable(stored)
    Access access;
  };

  BoundPrimitive() = default;
  /// @param arguments in the order in which run() takes their addresses.
  BoundPrimitive(dnnl::primitive primitive, std::initializer_list<Argument> arguments,
                 const dnnl::memory::desc& scratchpad);

  /// False for the empty one, which stands for "nothing to do" (a reorder between equal layouts).
  explicit operator bool() const { return static_cast<bool>(primitive_); }
  std::int64_t scratchpad_bytes() const { return scratchpad_bytes_; }

  /// @param addresses one for each argument; those to be read are not written.
  /// @param scratchpad scratchpad_bytes() bytes, 64-byte aligned.
  void run(std::initializer_list<const void*> addresses, std::byte* scratchpad);

 private:
  struct Conversion {
    std::size_t argument;
    Access access;
    F32Copy copy;
  };

  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;  // the scratchpad is the last
  std::vector<dnnl_exec_arg_t> arguments_;
  std::vector<Conversion> conversions_;
  std::int64_t scratchpad_bytes_ = 0;
};

/// A copy from one layout to another, both as stored. With @p add the destination is added to; without it, it is empty
/// where the layouts are equal for oneDNN, so that a primitive bound to the one can be bound to the other.
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
