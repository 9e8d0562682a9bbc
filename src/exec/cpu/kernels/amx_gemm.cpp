/// @file
/// AMX product of operands packed into panels (bf16_panels.hpp): two tiles of A by two of B make a 32 x 32 block of C,
/// four tiles of partial sums.
///
/// Loops: threads share out slabs of `slab_rows` rows of C. A slab of A is packed, then for blocks of `block_cols`
/// columns the inner dimension is walked in chunks short enough that a 32-column panel of B stays in the first-level
/// cache while the slab's rows pass it. Between chunks the partial sums wait in f32 in the second-level cache.

#include "exec/cpu/kernels/amx_gemm.hpp"

// GCC 12 takes the undefined merge operands of its own intrinsics for uninitialised variables (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <fmt/format.h>
#include <immintrin.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/ceil_div.hpp"
#include "base/error.hpp"
#include "base/instruction_set.hpp"
#include "exec/cpu/kernels/amx_tile_config.hpp"
#include "exec/cpu/kernels/bf16_panels.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"

// Compiled for AMX whatever -march says: amx_available() decides at run time.
#define STRATA_AMX [[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")]]

namespace strata::cpu {

namespace {

constexpr std::int64_t max_slab_rows = 512;
constexpr std::int64_t block_cols = 512;
constexpr std::int64_t max_chunk_steps = 32;
constexpr std::int64_t line_bytes = 64;  // of a cache
constexpr std::int64_t panel_step_bytes = step_values * size_of(DType::bf16);
constexpr std::int64_t sums_values = panel_lines * panel_lines;  // f32 values of a block's four tiles

struct Blocking {
  std::int64_t num_threads;
  std::int64_t num_slabs;
  std::int64_t slab_panels;  // of A in a slab
  std::int64_t num_panels_b;
  std::int64_t num_steps;    // of k
  std::int64_t chunk_steps;  // of k in a chunk

  explicit Blocking(const AmxGemmDims& dims) {
    num_threads = kernel_threads();
    const std::int64_t panels_a = ceil_div(dims.m, panel_lines);
    const std::int64_t wanted_slabs = ceil_div(ceil_div(dims.m, max_slab_rows), num_threads) * num_threads;
    slab_panels = ceil_div(panels_a, wanted_slabs);
    num_slabs = ceil_div(panels_a, slab_panels);
    num_panels_b = ceil_div(dims.n, panel_lines);
    num_steps = ceil_div(dims.k, step_k);
    chunk_steps = ceil_div(num_steps, ceil_div(num_steps, max_chunk_steps));
  }
  std::int64_t packed_b_values() const { return num_panels_b * num_steps * step_values; }
  std::int64_t packed_a_values() const { return slab_panels * num_steps * step_values; }
  /// Of one block of columns; with a single chunk of k nothing waits, and one block of tiles serves all.
  std::int64_t partial_sums() const {
    if (chunk_steps == num_steps) return sums_values;
    return slab_panels * std::min(num_panels_b, block_cols / panel_lines) * sums_values;
  }
};

/// The workspace, cut up. B is shared, the rest is one for each thread.
struct Buffers {
  bf16* packed_b;
  bf16* packed_a;
  float* sums;
};
Buffers cut(WorkspaceCutter& cutter, const Blocking& blocking) {
  Buffers buffers;
  // B last: it alone is written to its last byte whatever the shape.
  buffers.sums =
      reinterpret_cast<float*>(cutter.take(blocking.num_threads * blocking.partial_sums() * size_of(DType::f32)));
  buffers.packed_a =
      reinterpret_cast<bf16*>(cutter.take(blocking.num_threads * blocking.packed_a_values() * size_of(DType::bf16)));
  buffers.packed_b = reinterpret_cast<bf16*>(cutter.take(blocking.packed_b_values() * size_of(DType::bf16)));
  return buffers;
}

/// Low `count` bits set; count in 0..width of Mask.
constexpr std::uint64_t low_bits(std::int64_t count) { return count >= 64 ? ~0ULL : (1ULL << count) - 1; }

/// Memory to ask for while tiles are multiplied, so that nothing waits for it afterwards: the next panel of B, and the
/// rows of C that this block will write, which lie a leading dimension apart and so escape the hardware's prefetchers.
struct Prefetch {
  const char* next_b;
  std::int64_t b_bytes_per_step;
  char* c;  // null: not yet
  std::int64_t c_row_bytes;
  std::int64_t c_rows_per_step;
};

/// sums (four 16 x 16 f32 tiles) = or += panel of A · panel of B over num_steps steps of k.
STRATA_AMX inline void multiply_tiles(const bf16* a, const bf16* b, std::int64_t num_steps, float* sums, bool add,
                                      Prefetch prefetch) {
  if (add) {
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + 256, 64);
    _tile_loadd(2, sums + 512, 64);
    _tile_loadd(3, sums + 768, 64);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t step = 0; step < num_steps; ++step) {
    for (std::int64_t byte = 0; byte < prefetch.b_bytes_per_step; byte += 64) {
      _mm_prefetch(prefetch.next_b + byte, _MM_HINT_T1);
    }
    prefetch.next_b += prefetch.b_bytes_per_step;
    for (std::int64_t row = 0; row < prefetch.c_rows_per_step; ++row) {
      __builtin_prefetch(prefetch.c, 1);
      prefetch.c += prefetch.c_row_bytes;
    }
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + tile_values, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + tile_values, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += step_values;
    b += step_values;
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  _tile_stored(2, sums + 512, 64);
  _tile_stored(3, sums + 768, 64);
}

/// 16 bf16 values as f32.
STRATA_AMX inline __m512 widen(__m256i values) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

/// Writes the finished block at (row, col) to C: adds bias and old C, rounds, leaves out what is beyond m and n.
STRATA_AMX inline void store_block(const AmxGemmDims& dims, const float* sums, std::int64_t row, std::int64_t col,
                                   const bf16* bias, void* c) {
  const std::int64_t num_rows = std::min(panel_lines, dims.m - row);
  for (std::int64_t half = 0; half < 2; ++half) {
    const std::int64_t first = col + half * 16;
    if (first >= dims.n) {
      break;
    }
    const auto mask = static_cast<__mmask16>(low_bits(std::min<std::int64_t>(16, dims.n - first)));
    const __m512 shift = dims.bias ? widen(_mm256_maskz_loadu_epi16(mask, bias + first)) : _mm512_setzero_ps();
    for (std::int64_t i = 0; i < num_rows; ++i) {
      const float* line = sums + (i / 16) * 512 + half * 256 + (i % 16) * 16;
      __m512 value = _mm512_add_ps(_mm512_load_ps(line), shift);
      const std::int64_t offset = (row + i) * dims.ldc + first;
      if (dims.out_dtype == DType::f32) {
        float* out = static_cast<float*>(c) + offset;
        if (dims.accumulate) {
          value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, out));
        }
        _mm512_mask_storeu_ps(out, mask, value);
      } else {
        bf16* out = static_cast<bf16*>(c) + offset;
        if (dims.accumulate) {
          value = _mm512_add_ps(value, widen(_mm256_maskz_loadu_epi16(mask, out)));
        }
        _mm256_mask_storeu_epi16(out, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
      }
    }
  }
}

/// All columns of one slab of C, whose rows of A are packed.
STRATA_AMX void multiply_slab(const AmxGemmDims& dims, const Blocking& blocking, std::int64_t first_panel,
                              std::int64_t num_panels, const bf16* packed_a, const bf16* packed_b, const bf16* bias,
                              float* sums, void* c) {
  _tile_loadconfig(&whole_tiles);
  asm volatile("" ::: "memory");  // tile loads are opaque to the compiler: the packed values must be in memory
  const std::int64_t panel_values = blocking.num_steps * step_values;
  constexpr std::int64_t block_panels = block_cols / panel_lines;
  const bool single_chunk = blocking.chunk_steps == blocking.num_steps;
  for (std::int64_t block = 0; block < blocking.num_panels_b; block += block_panels) {
    const std::int64_t block_end = std::min(block + block_panels, blocking.num_panels_b);
    for (std::int64_t step = 0; step < blocking.num_steps; step += blocking.chunk_steps) {
      const std::int64_t steps = std::min(blocking.chunk_steps, blocking.num_steps - step);
      const bool last = step + steps == blocking.num_steps;
      for (std::int64_t j = block; j < block_end; ++j) {
        const bf16* panel_b = packed_b + j * panel_values + step * step_values;
        for (std::int64_t i = 0; i < num_panels; ++i) {
          const bf16* panel_a = packed_a + i * panel_values + step * step_values;
          float* partial = single_chunk ? sums : sums + ((j - block) * num_panels + i) * sums_values;
          Prefetch prefetch{};
          prefetch.b_bytes_per_step = ceil_div(panel_step_bytes, num_panels * line_bytes) * line_bytes;
          prefetch.next_b =
              reinterpret_cast<const char*>(panel_b + panel_values) + i * steps * prefetch.b_bytes_per_step;
          if (last) {
            prefetch.c_row_bytes = dims.ldc * size_of(dims.out_dtype);
            prefetch.c = static_cast<char*>(c) + (first_panel + i) * panel_lines * prefetch.c_row_bytes +
                         j * panel_lines * size_of(dims.out_dtype);
            prefetch.c_rows_per_step = ceil_div(panel_lines, steps);
          }
          multiply_tiles(panel_a, panel_b, steps, partial, step > 0, prefetch);
          if (last) {
            store_block(dims, partial, (first_panel + i) * panel_lines, j * panel_lines, bias, c);
          }
        }
      }
    }
  }
  _tile_release();
}

AmxGemmDims with_leading_dimensions(AmxGemmDims dims) {
  STRATA_INVARIANT(dims.m > 0 && dims.n > 0 && dims.k > 0,
                   fmt::format("empty product: m {}, n {}, k {}", dims.m, dims.n, dims.k));
  const auto complete = [](std::int64_t& ld, std::int64_t cols) {
    ld = ld == 0 ? cols : ld;
    STRATA_INVARIANT(ld >= cols, fmt::format("leading dimension {} of rows of {} elements", ld, cols));
  };
  complete(dims.lda, dims.transpose_a ? dims.m : dims.k);
  complete(dims.ldb, dims.transpose_b ? dims.k : dims.n);
  complete(dims.ldc, dims.n);
  return dims;
}

/// An operand from the first line of panel @p first_panel on.
PlainLines lines_from(const bf16* data, std::int64_t ld, bool k_contiguous, std::int64_t num_lines, std::int64_t num_k,
                      std::int64_t first_panel) {
  const std::int64_t first = first_panel * panel_lines;
  return {.data = data + (k_contiguous ? first * ld : first),
          .ld = ld,
          .order = k_contiguous ? LineOrder::k_contiguous : LineOrder::lines_contiguous,
          .num_lines = num_lines - first,
          .num_k = num_k};
}

}  // namespace

bool amx_available() {
  static const bool available = [] {
    constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
    return dnnl_takes_bf16() && instruction_set() == InstructionSet::amx &&
           syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return available;
}

std::int64_t amx_gemm_workspace_bytes(const AmxGemmDims& dims) {
  WorkspaceCutter cutter;
  cut(cutter, Blocking(with_leading_dimensions(dims)));
  return cutter.taken_bytes();
}

void amx_gemm(const AmxGemmDims& given, const bf16* a, const bf16* b, const bf16* bias, void* c,
              std::span<std::byte> workspace) {
  STRATA_INVARIANT(amx_available(), "no AMX here");
  const AmxGemmDims dims = with_leading_dimensions(given);
  STRATA_INVARIANT(dims.out_dtype == DType::f32 || dims.out_dtype == DType::bf16, "C is f32 or bf16");
  const Blocking blocking(dims);
  WorkspaceCutter cutter(workspace);
  const Buffers buffers = cut(cutter, blocking);
#pragma omp parallel num_threads(static_cast <int>(blocking.num_threads))
  {
    const std::int64_t thread = omp_get_thread_num();
    const std::int64_t team = omp_get_num_threads();
    const std::int64_t begin = blocking.num_panels_b * thread / team;
    const std::int64_t end = blocking.num_panels_b * (thread + 1) / team;
    pack_panels(lines_from(b, dims.ldb, dims.transpose_b, dims.n, dims.k, begin), TileSide::columns_of_b, end - begin,
                blocking.num_steps, buffers.packed_b + begin * blocking.num_steps * step_values);
#pragma omp barrier
    bf16* packed_a = buffers.packed_a + thread * blocking.packed_a_values();
    float* sums = buffers.sums + thread * blocking.partial_sums();
    const std::int64_t panels_a = ceil_div(dims.m, panel_lines);
    for (std::int64_t slab = thread; slab < blocking.num_slabs; slab += team) {
      const std::int64_t first = slab * blocking.slab_panels;
      const std::int64_t num_panels = std::min(blocking.slab_panels, panels_a - first);
      pack_panels(lines_from(a, dims.lda, !dims.transpose_a, dims.m, dims.k, first), TileSide::rows_of_a, num_panels,
                  blocking.num_steps, packed_a);
      multiply_slab(dims, blocking, first, num_panels, packed_a, buffers.packed_b, bias, sums, c);
    }
  }
}

}  // namespace strata::cpu
