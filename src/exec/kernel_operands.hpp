#pragma once

/// @file
/// Addresses of the kernels that have many, where they are the same on every device, and which outputs are added to.
/// Matrices are row-major.

#include <cstdint>

#include "base/dtype.hpp"
#include "base/random.hpp"

namespace strata {

struct LayerNormBackwardOperands {
  const void* dy = nullptr;           ///< [rows,width]
  const void* x = nullptr;            ///< [rows,width]
  const void* weight = nullptr;       ///< [width]
  const float* statistics = nullptr;  ///< [rows,2], forward's
  void* dx = nullptr;                 ///< [rows,width]; may be dy
  void* dweight = nullptr;            ///< [width]
  void* dbias = nullptr;              ///< [width]
};
/// Which outputs are added to instead of overwritten, here and below.
struct LayerNormAccumulate {
  bool dx = false;
  bool dweight = false;
  bool dbias = false;
};

struct RmsNormBackwardOperands {
  const void* dy = nullptr;           ///< [rows,width]
  const void* x = nullptr;            ///< [rows,width]
  const void* weight = nullptr;       ///< [width]
  const float* statistics = nullptr;  ///< [rows], forward's
  void* dx = nullptr;                 ///< [rows,width]; may be dy
  void* dweight = nullptr;            ///< [width]
};
struct RmsNormAccumulate {
  bool dx = false;
  bool dweight = false;
};

/// Of forward and inference.
struct BatchNormOperands {
  const void* x = nullptr;      ///< [rows,channels]
  const void* gamma = nullptr;  ///< [channels]
  const void* beta = nullptr;   ///< [channels]
  void* y = nullptr;            ///< [rows,channels]
};
struct BatchNormBackwardOperands {
  const void* dy = nullptr;                  ///< [rows,channels]
  const void* x = nullptr;                   ///< [rows,channels]
  const void* gamma = nullptr;               ///< [channels]
  const float* mean = nullptr;               ///< [channels], forward's
  const float* inverse_deviation = nullptr;  ///< [channels], forward's
  void* dx = nullptr;                        ///< [rows,channels]
  void* dgamma = nullptr;                    ///< [channels]
  void* dbeta = nullptr;                     ///< [channels]
};

/// Of rows whose features are split over ranks: `width` are this rank's.
struct NormApplyOperands {
  const void* x = nullptr;       ///< [rows,width]
  const float* all = nullptr;    ///< [parts,rows,2 or 3], what norm_partial made on all ranks
  const void* weight = nullptr;  ///< [width]
  const void* bias = nullptr;    ///< [width]; null where rms
  void* y = nullptr;             ///< [rows,width]
  float* statistics = nullptr;   ///< as layer_norm_forward's [rows,2] or rms_norm_forward's [rows]
};
struct NormBackwardPartialOperands {
  const void* dy = nullptr;           ///< [rows,width]
  const void* x = nullptr;            ///< [rows,width]
  const void* weight = nullptr;       ///< [width]
  const float* statistics = nullptr;  ///< norm_apply's
  float* partial = nullptr;           ///< [rows,2]
  void* dweight = nullptr;            ///< [width]
  void* dbias = nullptr;              ///< [width]; null where rms
};
struct NormBackwardApplyOperands {
  const void* dy = nullptr;           ///< [rows,width]
  const void* x = nullptr;            ///< [rows,width]
  const void* weight = nullptr;       ///< [width]
  const float* statistics = nullptr;  ///< norm_apply's
  const float* all = nullptr;         ///< [parts,rows,2], what norm_backward_partial made on all ranks
  void* dx = nullptr;                 ///< [rows,width]
};

/// What training has kept of the statistics of batches, for evaluation; both [channels].
struct RunningStatistics {
  float* mean = nullptr;
  float* variance = nullptr;  ///< unbiased
};

/// All [rows].
struct TopKOutputs {
  float* loss = nullptr;
  float* top_1 = nullptr;
  float* top_5 = nullptr;
};

struct EmbeddingBackwardOperands {
  const std::int32_t* tokens = nullptr;  ///< [rows]
  const void* dy = nullptr;              ///< [rows,width], a row every dims.row elements
  void* dtable = nullptr;                ///< [table_rows,width]
  void* dpositions = nullptr;            ///< [num_positions,width]; null where there is none
};
struct EmbeddingAccumulate {
  bool table = false;
  bool positions = false;
};

struct ClassTokenBackwardOperands {
  const void* dy = nullptr;    ///< [images,positions + 1,channels]
  void* dx = nullptr;          ///< [images,positions,channels]
  void* dtoken = nullptr;      ///< [channels]
  void* dpositions = nullptr;  ///< [positions + 1,channels]
};
struct ClassTokenAccumulate {
  bool token = false;
  bool positions = false;
};

/// The slice of a parameter that gets its initial values: y[i] is element first_element + i of the whole.
struct InitializedSlice {
  DType dtype = DType::f32;  ///< f32 or bf16
  void* y = nullptr;         ///< [n]
  std::int64_t n = 0;
  RandomStream random;
  std::uint64_t first_element = 0;
};

}  // namespace strata
