#pragma once

/// @file
/// Sizes and options of the kernels that have several, apart from addresses: what a call on any device, and the scratch
/// memory that it needs, are derived from. Dtypes are f32 or bf16.

#include <cstdint>

#include "base/dtype.hpp"
#include "ir/program/kernel_runs.hpp"

namespace strata {

struct LinearDims {
  std::int64_t tokens = 0;            ///< rows of x and y
  std::int64_t in = 0;                ///< columns of x
  std::int64_t out = 0;               ///< columns of y
  std::int64_t row = 0;               ///< elements from one row of x and dx to the next; 0: `in`, rows are contiguous
  std::int64_t out_row = 0;           ///< the same of y and dy; 0: `out`; else there is neither bias nor GELU
  DType dtype = DType::f32;           ///< of x, W, b, y, dy and dx: f32 or bf16
  DType gradient_dtype = DType::f32;  ///< of dW and db: f32, or bf16 where `dtype` is
  bool bias = false;
  bool gelu = false;  ///< forward: y is gelu(·), tanh form; backward: dx is that of GELU's input

  bool operator==(const LinearDims&) const = default;
};

struct ColumnSumsDims {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DType dtype = DType::f32;       ///< of the matrix: f32 or bf16
  DType sums_dtype = DType::f32;  ///< f32 or bf16
};

struct ConvolutionDims {
  std::int64_t images = 0;
  std::int64_t height = 0;  ///< of the input
  std::int64_t width = 0;
  std::int64_t in = 0;   ///< channels of the input
  std::int64_t out = 0;  ///< channels of the output
  std::int64_t kernel_h = 3;
  std::int64_t kernel_w = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 1;           ///< zeros on each side
  DType dtype = DType::f32;           ///< of x, W, b, y and their gradients but dW and db: f32 or bf16
  DType gradient_dtype = DType::f32;  ///< of dW and db: f32, or bf16 where `dtype` is
  bool bias = false;
  bool relu = false;      ///< forward applies max(0, ·); the caller masks dy before backward
  bool winograd = false;  ///< the CPU may compute by transforms, which rounds otherwise: exec/cpu/kernels/winograd.hpp

  std::int64_t out_height() const { return (height + 2 * padding - kernel_h) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - kernel_w) / stride + 1; }

  bool operator==(const ConvolutionDims&) const = default;
};

struct LayerNormDims {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  DType dtype = DType::f32;           ///< of x, y, dy, dx, weight, bias: f32 or bf16
  DType gradient_dtype = DType::f32;  ///< of dweight, dbias: f32 or bf16
  float epsilon = 1e-5F;
};

struct RmsNormDims {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  DType dtype = DType::f32;           ///< of x, y, dy, dx, weight: f32 or bf16
  DType gradient_dtype = DType::f32;  ///< of dweight: f32 or bf16
  float epsilon = 1e-5F;
};

struct BatchNormDims {
  std::int64_t rows = 0;  ///< at least 2
  std::int64_t channels = 0;
  DType dtype = DType::f32;            ///< of x, y, dy and dx
  DType parameter_dtype = DType::f32;  ///< of gamma and beta
  DType gradient_dtype = DType::f32;   ///< of dgamma and dbeta
  float epsilon = 1e-5F;
};

struct EmbeddingDims {
  std::int64_t rows = 0;  ///< tokens of this call: samples · sequence
  std::int64_t sequence = 1;
  std::int64_t width = 0;
  std::int64_t row = 0;             ///< elements from one row of y and dy to the next; 0: `width`, rows are contiguous
  std::int64_t vocabulary = 0;      ///< valid tokens are [0, vocabulary)
  std::int64_t first_token = 0;     ///< the table holds rows [first_token, first_token + table_rows) of the vocabulary
  std::int64_t table_rows = -1;     ///< -1: all of the vocabulary
  std::int64_t first_position = 0;  ///< row r stands at position first_position + r % sequence
  std::int64_t num_positions = 0;   ///< rows of the position table; 0: there is none
  DType dtype = DType::f32;         ///< of the tables, y and dy: f32 or bf16
  DType gradient_dtype = DType::f32;  ///< of dtable and dpositions: f32 or bf16
};

struct RotaryDims {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t num_heads = 0;         ///< rotated heads at the start of each row; of a fused qkv: query and key heads
  std::int64_t num_copied_heads = 0;  ///< heads after those, taken over as they are: the value heads
  std::int64_t head_dim = 0;          ///< even
  DType dtype = DType::f32;           ///< of x and y: f32 or bf16
  double theta = 10000.0;             ///< pair i turns by position · theta^(-2 i / head_dim) radians
  std::int64_t first_position = 0;    ///< of each sample's first token
};

/// Sizes and options of a call; equal in forward and backward.
struct AttentionDims {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads =
      0;  ///< divides num_heads; query head h reads key and value head h / (num_heads / num_kv_heads)
  std::int64_t head_dim = 0;
  DType dtype = DType::f32;  ///< of q, k, v, y and their gradients: f32 or bf16
  bool causal = true;        ///< query i sees keys 0 … i; otherwise all

  float dropout_probability = 0.0F;  ///< of each probability, in [0, 1)
  // The mask's element (sample, head, i, j) has the index ((sample · total_heads + head) · seq + i) · seq + j, so that
  // no split of the batch or of the heads over calls and ranks changes it.
  std::int64_t first_sample = 0;  ///< global index of the first sample of this call
  std::int64_t first_head = 0;    ///< global index of the first query head of this call
  std::int64_t total_heads = 0;   ///< query heads of the whole operator; 0: num_heads
};

struct MaxPoolDims {
  std::int64_t images = 0;
  std::int64_t height = 0;  ///< of the input
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t kernel = 2;  ///< window height and width, at most 16
  std::int64_t stride = 2;
  std::int64_t padding = 0;  ///< on each side, at most kernel / 2; never the maximum
  DType dtype = DType::f32;
  bool relu = false;  ///< forward: maxima that are not above 0 have the index no_place; windows up to 15

  static constexpr std::uint8_t no_place = 255;
  std::int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
};

struct AveragePoolDims {
  std::int64_t images = 0;
  std::int64_t positions = 0;  ///< height · width
  std::int64_t channels = 0;
  DType dtype = DType::f32;
};

/// A learned row in front of the rows of an image, and learned positions added to all.
struct ClassTokenDims {
  std::int64_t images = 0;
  std::int64_t positions = 0;  ///< height · width; of y one more
  std::int64_t channels = 0;
  DType dtype = DType::f32;           ///< of x, y, their gradients, the token and the positions: f32 or bf16
  DType gradient_dtype = DType::f32;  ///< of dtoken and dpositions: f32 or bf16
};

/// The first row of each sample.
struct FirstRowDims {
  std::int64_t samples = 0;
  std::int64_t sequence = 1;
  std::int64_t width = 0;
  DType dtype = DType::f32;
};

/// A target that takes no part: its loss and its gradients are 0.
inline constexpr std::int32_t ignored_target = -1;

struct CrossEntropyDims {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  std::int64_t row_stride = 0;  ///< elements from one row of logits to the next; 0: classes
  DType dtype = DType::f32;     ///< of the logits: f32 or bf16
};

/// y has runs of neighbours of x, in an order of its own: run (i0, i1, …) begins at first + Σ i_k · stride_k. Or, where
/// it scatters, x has runs of y, and y's other elements stay.
struct PermuteDims {
  static constexpr int most_levels = static_cast<int>(most_run_levels);
  std::int64_t elements = 0;  ///< that are copied
  std::int64_t first = 0;
  std::int64_t run = 1;
  int num_levels = 0;
  std::int64_t sizes[most_levels] = {};    ///< the last is innermost
  std::int64_t strides[most_levels] = {};  ///< elements of the side with runs
  /// Copied elements from one index of a level to the next, where the last run between them is cut short; 0: as many as
  /// follow from the sizes inside.
  std::int64_t periods[most_levels] = {};
  bool scatters = false;
  DType dtype = DType::f32;

  constexpr std::int64_t period(int level) const {
    if (periods[level] > 0) return periods[level];
    std::int64_t inside = run;
    for (int l = num_levels - 1; l > level; --l) inside = sizes[l] * (periods[l] > 0 ? periods[l] : inside);
    return inside;
  }
  struct Place {
    std::int64_t at = 0;          ///< on the side with runs
    std::int64_t neighbours = 0;  ///< that stand together from there on, this one included
  };
  /// Of copied element number @p index.
  constexpr Place place(std::int64_t index) const {
    Place result{first, elements - index};
    for (int l = 0; l < num_levels; ++l) {
      const std::int64_t inside = period(l);
      result.at += index / inside * strides[l];
      index %= inside;
      if (inside - index < result.neighbours) result.neighbours = inside - index;
    }
    if (num_levels > 0 && run - index < result.neighbours) result.neighbours = run - index;
    result.at += index;
    return result;
  }
  /// The copied element that stands at @p at, -1: none does. Runs do not overlap, and stand in rising order.
  constexpr std::int64_t index_of(std::int64_t at) const {
    std::int64_t rest = at - first, index = 0;
    for (int l = 0; l < num_levels; ++l) {
      const std::int64_t i = rest / strides[l];
      if (rest < 0 || i >= sizes[l]) return -1;
      rest -= i * strides[l];
      index += i * period(l);
    }
    return rest >= 0 && rest < run && index + rest < elements ? index + rest : -1;
  }
  /// Whether blocks of @p size copied elements always stand together.
  constexpr bool comes_in(std::int64_t size) const {
    for (int l = 0; l < num_levels; ++l) {
      if (period(l) % size != 0) return false;
    }
    return run % size == 0 && elements % size == 0;
  }
};

/// Norms of rows whose features are split over ranks.
struct SplitNormDims {
  std::int64_t rows = 0;
  std::int64_t width = 0;     ///< features of this rank
  std::int64_t parts = 1;     ///< ranks with so many each
  std::int64_t features = 0;  ///< of all ranks, where they have unequal numbers; 0: parts · width
  bool rms = false;

  /// A part of a row says how many features it has where others have more or fewer.
  constexpr int statistics() const { return features > 0 ? 3 : 2; }
  constexpr std::int64_t all_features() const { return features > 0 ? features : parts * width; }
  DType dtype = DType::f32;           ///< of x, y, dy, dx, weight, bias: f32 or bf16
  DType gradient_dtype = DType::f32;  ///< of dweight, dbias: f32 or bf16
  float epsilon = 1e-5F;
};

/// Cross-entropy of rows whose classes are split over ranks.
struct SplitCrossEntropyDims {
  std::int64_t rows = 0;
  std::int64_t classes = 0;  ///< of this rank
  PermuteDims held{};        ///< which: logit i of this rank is that of the class where element i of the runs stands
  std::int64_t parts = 1;    ///< ranks that have some
  DType dtype = DType::f32;  ///< of the logits: f32 or bf16
};

/// Numbers as blocks of codes, see base/quantization.hpp.
struct QuantizedDims {
  std::int64_t elements = 0;  ///< of the plain tensor, chunk c of which is [c·chunk, (c+1)·chunk); the last are short
  std::int64_t chunk = 0;
  std::int64_t chunks = 1;
  std::int64_t block = 16;   ///< a multiple of 16
  int bits = 8;              ///< 8 | 4
  DType dtype = DType::f32;  ///< of the plain tensor: f32 | bf16
};

}  // namespace strata
