#include "exec/cpu/kernels/f32_copy.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"
#include "exec/cpu/kernels/storage.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

using dnnl::memory;

bool dnnl_takes_bf16() {
  // Names of instruction sets are sets of bits. On AVX-512 without bf16 instructions oneDNN takes bf16 too, and makes
  // pairs and roundings by hand: a product then takes 2.8 times what it takes in f32.
  static const bool takes = [] {
    limit_dnnl();
    constexpr auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
  }();
  return takes;
}

memory::desc computable(const memory::desc& stored) {
  if (stored.data_type() != memory::data_type::bf16 || dnnl_takes_bf16()) {
    return stored;
  }
  if (stored.data.format_kind == dnnl_format_kind_any) {
    return {stored.dims(), memory::data_type::f32, memory::format_tag::any};
  }
  return F32Copy(stored).layout();
}

F32Copy::F32Copy(const memory::desc& stored) {
  STRATA_INVARIANT(stored.data_type() == memory::data_type::bf16, "an f32 copy of what is not bf16");
  STRATA_INVARIANT(stored.data.format_kind == dnnl_blocked && stored.data.format_desc.blocking.inner_nblks == 0,
                   "an f32 copy of a blocked layout");
  const memory::dims dims = stored.dims();
  const auto* strides = stored.data.format_desc.blocking.strides;
  std::vector<std::size_t> order(dims.size());  // slowest first
  std::iota(order.begin(), order.end(), std::size_t{0});
  // A dim of size 1 may have its neighbour's stride, and is the faster one then: where there are no gaps the copy has
  // the tensor's strides.
  std::sort(order.begin(), order.end(),
            [&](auto a, auto b) { return std::pair(strides[a], dims[a]) > std::pair(strides[b], dims[b]); });
  memory::dims dense(dims.size());
  std::int64_t num_elements = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    dense[*dim] = num_elements;
    num_elements *= dims[*dim];
    if (dims[*dim] == 1) {
      continue;
    }
    if (outer_.empty() && strides[*dim] == run_) {
      run_ *= dims[*dim];
    } else {
      outer_.push_back({dims[*dim], strides[*dim]});
      num_runs_ *= dims[*dim];
    }
  }
  std::reverse(outer_.begin(), outer_.end());
  layout_ = {dims, memory::data_type::f32, dense};
}

template <typename Body>
void F32Copy::for_pieces(Body&& body) const {
  const std::int64_t pieces_a_run = (run_ + chunk_elements - 1) / chunk_elements;
#pragma omp parallel for schedule(static) if (num_runs_ * run_ > 4 * chunk_elements)
  for (std::int64_t piece = 0; piece < num_runs_ * pieces_a_run; ++piece) {
    std::int64_t run = piece / pieces_a_run;
    const std::int64_t begin = piece % pieces_a_run * chunk_elements;
    const std::int64_t in_copy = run * run_ + begin;
    std::int64_t in_stored = begin;
    for (auto dim = outer_.rbegin(); dim != outer_.rend(); ++dim) {
      in_stored += run % dim->size * dim->stride;
      run /= dim->size;
    }
    body(in_stored, in_copy, std::min(chunk_elements, run_ - begin));
  }
}

void F32Copy::widen(const bf16* stored, float* copy) const {
  for_pieces([&](std::int64_t in_stored, std::int64_t in_copy, std::int64_t count) {
    for_lanes(count, [&](std::int64_t i, auto lanes) {
      store(copy + in_copy + i, load(stored + in_stored + i, lanes), lanes);
    });
  });
}

void F32Copy::narrow(const float* copy, bf16* stored) const {
  for_pieces([&](std::int64_t in_stored, std::int64_t in_copy, std::int64_t count) {
    for_lanes(count, [&](std::int64_t i, auto lanes) {
      store(stored + in_stored + i, load(copy + in_copy + i, lanes), lanes);
    });
  });
}

}  // namespace strata::cpu
