#include "cuda/emulation/products.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "cuda/emulation/streams.hpp"

namespace {

using strata::bf16;

struct Matrix {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
};
const Matrix& matrix(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<const Matrix*>(layout); }

/// Attributes as they were set, by number.
using Attributes = std::map<int, std::vector<std::byte>>;
template <typename Handle>
Attributes& attributes(Handle handle) {
  return *reinterpret_cast<Attributes*>(handle);
}
template <typename T>
T value_of(const Attributes& all, int name, T otherwise) {
  const auto at = all.find(name);
  if (at == all.end() || at->second.size() != sizeof(T)) return otherwise;
  std::memcpy(&otherwise, at->second.data(), sizeof(T));
  return otherwise;
}
template <typename Handle>
cublasStatus_t set(Handle handle, int name, const void* value, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(value);
  attributes(handle)[name].assign(begin, begin + bytes);
  return CUBLAS_STATUS_SUCCESS;
}

float load(cudaDataType_t type, const void* from, std::int64_t i) {
  return type == CUDA_R_32F ? static_cast<const float*>(from)[i]
                            : static_cast<float>(static_cast<const bf16*>(from)[i]);
}
void store(cudaDataType_t type, void* to, std::int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(to)[i] = value;
  } else {
    static_cast<bf16*>(to)[i] = bf16(value);
  }
}

/// GELU in its tanh form, and its derivative.
float gelu(float x) { return 0.5F * x * (1.0F + std::tanh(0.797884560802865F * (x + 0.044715F * x * x * x))); }
float gelu_derivative(float x) {
  const float t = std::tanh(0.797884560802865F * (x + 0.044715F * x * x * x));
  return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * 0.797884560802865F * (1.0F + 3.0F * 0.044715F * x * x);
}

/// What a call of cublasLtMatmul asks for, free of descriptors that may go before the stream's turn comes.
struct Product {
  const void* a;
  const void* b;
  void* d;
  Matrix of_a, of_b, of_d;
  bool transpose_a, transpose_b;
  bool adds;
  std::uint32_t epilogue;
  void* bias;       ///< or its gradient, of the type of d
  void* auxiliary;  ///< of GELU, likewise
  std::int64_t auxiliary_leading;

  bool has(std::initializer_list<cublasLtEpilogue_t> any) const {
    return std::ranges::find(any, static_cast<cublasLtEpilogue_t>(epilogue)) != any.end();
  }
  bool adds_bias() const {
    return has({CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
  }
  bool is_gelu() const {
    return adds_bias() ? epilogue != CUBLASLT_EPILOGUE_BIAS : has({CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_AUX});
  }
  bool writes_auxiliary() const { return has({CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}); }

  std::int64_t k() const { return transpose_a ? of_a.rows : of_a.columns; }
  /// Whether shapes and epilogue are ones that cuBLASLt's documentation knows.
  bool is_sound() const {
    const auto begins_a_vector = [](const void* at) {
      return at != nullptr && std::bit_cast<std::uintptr_t>(at) % 16 == 0;
    };
    const std::int64_t rows = transpose_a ? of_a.columns : of_a.rows;
    const std::int64_t columns = transpose_b ? of_b.rows : of_b.columns;
    const bool needs_auxiliary = writes_auxiliary() || epilogue == CUBLASLT_EPILOGUE_DGELU;
    const bool needs_bias = adds_bias() || epilogue == CUBLASLT_EPILOGUE_BGRADB;
    return rows == of_d.rows && columns == of_d.columns && k() == (transpose_b ? of_b.columns : of_b.rows) &&
           of_a.leading >= of_a.rows && of_b.leading >= of_b.rows && of_d.leading >= of_d.rows &&
           of_a.type == of_b.type &&
           (!needs_auxiliary || (begins_a_vector(auxiliary) && auxiliary_leading >= of_d.rows)) &&
           (!needs_bias || begins_a_vector(bias)) &&
           (needs_bias || is_gelu() || has({CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DGELU}));
  }

  void multiply() const {
    // Rows of op(A) and columns of op(B), contiguous.
    std::vector<float> rows(static_cast<std::size_t>(of_d.rows * k()));
    std::vector<float> columns(static_cast<std::size_t>(of_d.columns * k()));
    for (std::int64_t p = 0; p < k(); ++p) {
      for (std::int64_t i = 0; i < of_d.rows; ++i) {
        rows[static_cast<std::size_t>(i * k() + p)] =
            load(of_a.type, a, transpose_a ? p + i * of_a.leading : i + p * of_a.leading);
      }
      for (std::int64_t j = 0; j < of_d.columns; ++j) {
        columns[static_cast<std::size_t>(j * k() + p)] =
            load(of_b.type, b, transpose_b ? j + p * of_b.leading : p + j * of_b.leading);
      }
    }
    for (std::int64_t j = 0; j < of_d.columns; ++j) {
      const float* const column = columns.data() + j * k();
      if (epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        store(of_d.type, bias, j, std::accumulate(column, column + k(), 0.0F));
      }
      for (std::int64_t i = 0; i < of_d.rows; ++i) {
        constexpr int num_sums = 8;  // so that additions need not wait for each other
        float sums[num_sums] = {};
        const float* const row = rows.data() + i * k();
        for (std::int64_t p = 0; p < k(); ++p) sums[p % num_sums] += row[p] * column[p];
        float sum = 0.0F;
        for (const float part : sums) sum += part;
        finish(sum, i, j);
      }
    }
  }
  void finish(float sum, std::int64_t i, std::int64_t j) const {
    if (adds_bias()) sum += load(of_d.type, bias, i);
    const std::int64_t at = i + j * of_d.leading;
    if (adds) sum += load(of_d.type, d, at);
    if (writes_auxiliary()) store(of_d.type, auxiliary, i + j * auxiliary_leading, sum);
    if (is_gelu()) sum = gelu(sum);
    if (epilogue == CUBLASLT_EPILOGUE_DGELU) {
      sum *= gelu_derivative(load(of_d.type, auxiliary, i + j * auxiliary_leading));
    }
    store(of_d.type, d, at, sum);
  }
};

Product product(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                cublasLtMatrixLayout_t d) {
  const Attributes& all = attributes(operation);
  const auto is_transposed = [&](int name) { return value_of(all, name, CUBLAS_OP_N) == CUBLAS_OP_T; };
  return {.a = nullptr,
          .b = nullptr,
          .d = nullptr,
          .of_a = matrix(a),
          .of_b = matrix(b),
          .of_d = matrix(d),
          .transpose_a = is_transposed(CUBLASLT_MATMUL_DESC_TRANSA),
          .transpose_b = is_transposed(CUBLASLT_MATMUL_DESC_TRANSB),
          .adds = false,
          .epilogue = value_of(all, CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT}),
          .bias = value_of<void*>(all, CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr),
          .auxiliary = value_of<void*>(all, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr),
          .auxiliary_leading = value_of<std::int64_t>(all, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0)};
}

std::vector<emulation::ProductKernel> named(1);
std::vector<std::int64_t> computed(1);

}  // namespace

namespace emulation {

void name_product_kernels(std::vector<ProductKernel> kernels) {
  named = std::move(kernels);
  computed.assign(named.size(), 0);
}
std::vector<std::int64_t> num_products() { return computed; }

}  // namespace emulation

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "an error of the emulation";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return *handle = nullptr, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Matrix{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete reinterpret_cast<Matrix*>(layout), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t, cudaDataType_t) {
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(new Attributes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return delete &attributes(operation), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name,
                                              const void* value, std::size_t bytes) {
  return set(operation, name, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Attributes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return delete &attributes(preference), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* value,
                                                    std::size_t bytes) {
  return set(preference, name, value, bytes);
}

/// The number of a kernel stands where the library keeps what its own have.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  *count = 0;
  // Where it may, the library joins parts of a sum in the dtype of the result, and rounds each of them.
  const std::uint32_t joined = value_of(attributes(preference), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                        std::uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK});
  if (matrix(d).type == CUDA_R_16BF && joined != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!product(operation, a, b, d).is_sound()) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (; *count < most && static_cast<std::size_t>(*count) < named.size(); ++*count) {
    results[*count] = {};
    results[*count].algo.data[0] = static_cast<std::uint64_t>(*count);
    results[*count].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void*, const void* a,
                              cublasLtMatrixLayout_t of_a, const void* b, cublasLtMatrixLayout_t of_b, const void* beta,
                              const void* c, cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t,
                              cudaStream_t stream) {
  // As an H200's does, whether the kernel uses it or not.
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  Product p = product(operation, of_a, of_b, of_d);
  p.a = a;
  p.b = b;
  p.d = d;
  p.adds = *static_cast<const float*>(beta) != 0.0F;
  const auto kernel = static_cast<std::size_t>(algorithm->data[0]);
  if (!p.is_sound() || c != d || kernel >= named.size() || named[kernel].refuses) return CUBLAS_STATUS_NOT_SUPPORTED;
  emulation::submit(stream, [=] {
    p.multiply();
    ++computed.at(kernel);
    emulation::pass_time(named.at(kernel).milliseconds);
  });
  return CUBLAS_STATUS_SUCCESS;
}
