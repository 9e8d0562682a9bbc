/// @file
/// Engine, stream, bound primitives. The engine and the stream are never destroyed: primitives of other threads may
/// outlive main().

#include "exec/cpu/kernels/dnnl_context.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/instruction_set.hpp"

namespace strata::cpu {

namespace {
constexpr std::int64_t alignment_bytes = 64;
}

void limit_dnnl() {
  static const bool is_done = [] {
    if (!instruction_set_is_limited()) return true;
    dnnl::cpu_isa isa = dnnl::cpu_isa::all;
    switch (instruction_set()) {
      case InstructionSet::avx2: isa = dnnl::cpu_isa::avx2; break;
      case InstructionSet::avx512: isa = dnnl::cpu_isa::avx512_core; break;
      case InstructionSet::avx512_bf16: isa = dnnl::cpu_isa::avx512_core_bf16; break;
      case InstructionSet::amx: break;
    }
    STRATA_INVARIANT(dnnl::set_max_cpu_isa(isa) == dnnl::status::success,
                     "oneDNN was asked for something before its instructions were limited");
    return true;
  }();
  static_cast<void>(is_done);
}

const dnnl::engine& dnnl_engine() {
  limit_dnnl();
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& dnnl_stream() {
  static auto* stream = new dnnl::stream(dnnl_engine());
  return *stream;
}

dnnl::memory::data_type dnnl_type(DType dtype) {
  STRATA_INVARIANT(dtype == DType::f32 || dtype == DType::bf16,
                   fmt::format("dense kernels take f32 and bf16, not {}", to_string(dtype)));
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

int kernel_threads() { return omp_in_parallel() != 0 ? 1 : omp_get_max_threads(); }

BoundPrimitive::BoundPrimitive(dnnl::primitive primitive, std::initializer_list<Argument> arguments,
                               const dnnl::memory::desc& scratchpad)
    : primitive_(std::move(primitive)) {
  WorkspaceCutter cutter;
  // oneDNN asks for more scratchpad than it writes: it goes below what is written to the last byte.
  cutter.take(static_cast<std::int64_t>(scratchpad.get_size()));
  const auto bind = [this](int index, const dnnl::memory::desc& layout) {
    memories_.push_back(dnnl::memory(layout, dnnl_engine(), DNNL_MEMORY_NONE));
    arguments_.push_back({index, memories_.back().get()});
  };
  for (const auto& [index, stored, access] : arguments) {
    const dnnl::memory::desc layout = computable(stored);
    if (layout != stored) {
      conversions_.push_back({memories_.size(), access, F32Copy(stored)});
      cutter.take(static_cast<std::int64_t>(layout.get_size()));
    }
    bind(index, layout);
  }
  bind(DNNL_ARG_SCRATCHPAD, scratchpad);
  scratchpad_bytes_ = cutter.taken_bytes();
}

void BoundPrimitive::run(std::initializer_list<const void*> addresses, std::byte* scratchpad) {
  STRATA_INVARIANT(addresses.size() + 1 == memories_.size(),
                   fmt::format("{} addresses for {} arguments", addresses.size(), memories_.size() - 1));
  const auto set = [](dnnl::memory& memory, const void* address) {
    // Setting the address of a padded layout also clears its padding, so it is not done without need.
    if (memory.get_data_handle() != address) {
      memory.set_data_handle(const_cast<void*>(address));
    }
  };
  WorkspaceCutter cutter({scratchpad, static_cast<std::size_t>(scratchpad_bytes_)});
  set(memories_.back(), cutter.take(static_cast<std::int64_t>(memories_.back().get_desc().get_size())));
  auto conversion = conversions_.begin();
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const void* const address = addresses.begin()[i];
    if (conversion == conversions_.end() || conversion->argument != i) {
      set(memories_[i], address);
      continue;
    }
    std::byte* const copy = cutter.take(static_cast<std::int64_t>(conversion->copy.layout().get_size()));
    if (conversion->access != Access::write) {
      conversion->copy.widen(static_cast<const bf16*>(address), reinterpret_cast<float*>(copy));
    }
    set(memories_[i], copy);
    ++conversion;
  }
  const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), dnnl_stream().get(),
                                                      static_cast<int>(arguments_.size()), arguments_.data());
  STRATA_INVARIANT(status == dnnl_success,
                   fmt::format("oneDNN execution failed with status {}", static_cast<int>(status)));
  dnnl_stream().wait();
  for (const auto& [argument, access, copy] : conversions_) {
    if (access != Access::read) {
      copy.narrow(static_cast<const float*>(memories_[argument].get_data_handle()),
                  static_cast<bf16*>(const_cast<void*>(addresses.begin()[argument])));
    }
  }
}

BoundPrimitive make_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to, bool add) {
  if (computable(from) == computable(to) && !add) {
    return {};
  }
  return dnnl_build("reorder", [&] {
    dnnl::primitive_attr attributes = user_scratchpad();
    if (add) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const dnnl::reorder::primitive_desc description(dnnl_engine(), computable(from), dnnl_engine(), computable(to),
                                                    attributes);
    return BoundPrimitive(
        dnnl::reorder(description),
        {{DNNL_ARG_FROM, from, Access::read}, {DNNL_ARG_TO, to, add ? Access::update : Access::write}},
        description.scratchpad_desc());
  });
}

std::size_t PrimitiveKeyHash::operator()(const PrimitiveKey& key) const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const std::int64_t word : key) {
    hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x100000001b3ULL;
    hash ^= hash >> 29U;
  }
  return hash;
}

WorkspaceCutter::WorkspaceCutter(std::span<std::byte> workspace) : workspace_(workspace), measuring_(false) {
  STRATA_INVARIANT(reinterpret_cast<std::uintptr_t>(workspace.data()) % alignment_bytes == 0,
                   "a workspace starts at a multiple of 64 bytes");
}

std::byte* WorkspaceCutter::take(std::int64_t num_bytes) {
  const std::int64_t begin = (taken_bytes_ + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  if (num_bytes > 0) taken_bytes_ = begin + num_bytes;
  if (measuring_ || num_bytes == 0) {
    return nullptr;
  }
  STRATA_INVARIANT(taken_bytes_ <= static_cast<std::int64_t>(workspace_.size()),
                   fmt::format("workspace of {} bytes, needs {} or more", workspace_.size(), taken_bytes_));
  return workspace_.data() + begin;
}

namespace detail {
void refuse_dnnl(const std::string& what, const dnnl::error& error) {
  throw Unsupported(
      fmt::format("oneDNN cannot {}: {} (status {})", what, error.what(), static_cast<int>(error.status)));
}
}  // namespace detail

void require_32_bits(const std::string& what, std::initializer_list<std::int64_t> dims) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (std::ranges::any_of(dims, [](std::int64_t dim) { return dim > most; })) {
    throw Unsupported(fmt::format("oneDNN cannot {}: a size above {}", what, most));
  }
}

}  // namespace strata::cpu
