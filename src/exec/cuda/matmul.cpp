#include "exec/cuda/matmul.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "exec/cuda/event.hpp"
#include "exec/device/workspace.hpp"

namespace strata::cuda {
namespace {

template <typename T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, static_cast<const void*>(&value), sizeof value),
        "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

/// A matrix as it is stored: rows and columns swap where the product transposes it.
cublasLtMatrixLayout_t stored(DType dtype, std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t ld) {
  if (transposed) std::swap(rows, columns);
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, cuda_type(dtype), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), ld),
        "cublasLtMatrixLayoutCreate");
  return layout;
}

std::uint32_t epilogue_of(const MatmulOperands& o) {
  using enum MatmulOperands::Activation;
  if (o.bias_gradient != nullptr) return CUBLASLT_EPILOGUE_BGRADB;
  if (o.activation == gelu_gradient) return CUBLASLT_EPILOGUE_DGELU;
  if (o.activation == none) return o.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (o.before == nullptr) return o.bias != nullptr ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return o.bias != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
}

std::uint32_t alignment_of(const void* address) { return alignment_bytes(reinterpret_cast<std::uintptr_t>(address)); }

}  // namespace

Matmul::Matmul(Libraries& libraries, const MatmulOperands& operands, std::span<std::byte> workspace)
    : libraries_(libraries), operands_(operands), workspace_(workspace.data()) {
  STRATA_INVARIANT(static_cast<std::int64_t>(workspace.size()) >= matmul_workspace_bytes, "a product's workspace");
  STRATA_INVARIANT(operands.bias == nullptr || operands.out_dtype == operands.dtype, "a bias has the result's dtype");
  const bool is_activated = operands.activation != MatmulOperands::Activation::none;
  STRATA_INVARIANT(operands.bias_gradient == nullptr || (operands.bias == nullptr && !is_activated), "one epilogue");
  STRATA_INVARIANT(!is_activated || (!operands.accumulate && operands.out_dtype == operands.dtype),
                   "an activation is one of the product alone, in its dtype");
  const MatmulLayout& l = operands.layout;
  const cublasComputeType_t compute =
      operands.dtype == DType::f32 && libraries.numerics().tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(&operation_, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, l.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, l.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(operands));
  if (operands.before != nullptr) {
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.before);
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, l.ldd);
  }
  if (operands.bias != nullptr) {
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  } else if (operands.bias_gradient != nullptr) {
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias_gradient);
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(operands.out_dtype));
  }
  a_ = stored(operands.dtype, l.m, l.k, l.transpose_a, l.lda);
  b_ = stored(operands.dtype, l.k, l.n, l.transpose_b, l.ldb);
  d_ = stored(operands.out_dtype, l.m, l.n, false, l.ldd);
  try {
    choose(workspace.size());
  } catch (...) {
    destroy();
    throw;
  }
}

std::shared_ptr<Matmul> Matmul::if_there(Libraries& libraries, const MatmulOperands& operands,
                                         std::span<std::byte> workspace) {
  try {
    return std::make_shared<Matmul>(libraries, operands, workspace);
  } catch (const Unsupported&) {
    return nullptr;
  }
}

Matmul::~Matmul() { destroy(); }

void Matmul::destroy() {
  static_cast<void>(cublasLtMatrixLayoutDestroy(d_));
  static_cast<void>(cublasLtMatrixLayoutDestroy(b_));
  static_cast<void>(cublasLtMatrixLayoutDestroy(a_));
  static_cast<void>(cublasLtMatmulDescDestroy(operation_));
}

/// All that the heuristic goes by: it answers equal questions alike.
std::string Matmul::shape() const {
  const MatmulOperands& o = operands_;
  const MatmulLayout& l = o.layout;
  return fmt::format("{} x {} x {}{}{} in {} to {}, rows of {}, {} and {}, epilogue {}{}, aligned to {}", l.m, l.n, l.k,
                     l.transpose_a ? ", A transposed" : "", l.transpose_b ? ", B transposed" : "", to_string(o.dtype),
                     to_string(o.out_dtype), l.lda, l.ldb, l.ldd, epilogue_of(o), o.accumulate ? ", added" : "",
                     fmt::join(std::array{alignment_of(o.a), alignment_of(o.b), alignment_of(o.d), alignment_of(o.bias),
                                          alignment_of(o.bias_gradient), alignment_of(o.before)},
                               ", "));
}

std::vector<cublasLtMatmulHeuristicResult_t> Matmul::kernels(std::size_t workspace_bytes) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(operands_.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(operands_.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(operands_.d));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(operands_.d));
  // A sum that is split is joined in f32, as it is made: by default one of bf16 may be joined in bf16. Parts that are
  // joined in a second pass keep their order; those that are added in place do not.
  const auto joined = operands_.out_dtype == DType::f32
                          ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE |
                                (libraries_.numerics().deterministic ? 0 : CUBLASLT_REDUCTION_SCHEME_INPLACE)
                          : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(joined));
  // The fastest first; one may be listed that does not fit after all.
  std::vector<cublasLtMatmulHeuristicResult_t> found(8);
  int num_found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(libraries_.blas(), operation_, a_, b_, d_, d_, preference,
                                     static_cast<int>(found.size()), found.data(), &num_found);
  static_cast<void>(cublasLtMatmulPreferenceDestroy(preference));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  found.resize(static_cast<std::size_t>(num_found));
  std::erase_if(found, [](const auto& kernel) { return kernel.state != CUBLAS_STATUS_SUCCESS; });
  return found;
}

void Matmul::choose(std::size_t workspace_bytes) {
  choice_ = &libraries_.product_choices().of(shape());
  if (choice_->kernels.empty()) {
    choice_->kernels = kernels(workspace_bytes);
    if (libraries_.numerics().time_products && choice_->kernels.size() > 1) time_kernels();
  }
  if (!choice_->kernels.empty()) return;
  const MatmulLayout& l = operands_.layout;
  throw Unsupported(fmt::format("cuBLASLt has no kernel for a product of {} x {} x {} in {} to {}", l.m, l.n, l.k,
                                to_string(operands_.dtype), to_string(operands_.out_dtype)));
}

/// On whatever the operands hold: how long a kernel takes does not depend on it, but for the power that it draws, which
/// so few products do not come to the limit of.
void Matmul::time_kernels() {
  // A product of microseconds is shorter than what the host takes to queue it: several follow each other.
  constexpr int num_together = 4;
  constexpr int num_repetitions = 3;
  const Stream stream;
  Event begin(Event::Kind::timing);
  Event end(Event::Kind::timing);
  choice_->nanoseconds.clear();
  for (const cublasLtMatmulHeuristicResult_t& kernel : choice_->kernels) {
    std::int64_t& best = choice_->nanoseconds.emplace_back(ProductChoice::refused);
    // The first one loads the kernel, or tells that it is refused after all.
    if (multiply(kernel, stream.get()) != CUBLAS_STATUS_SUCCESS) continue;
    for (int i = 0; i < num_repetitions; ++i) {
      begin.record(stream.get());
      for (int j = 0; j < num_together; ++j) check(multiply(kernel, stream.get()), "cublasLtMatmul");
      end.record(stream.get());
      stream.synchronize();
      best = std::min(best, end.ns_since(begin) / num_together);
    }
  }
  if (!choice_->choose_fastest()) choice_->kernels.clear();
}

cublasStatus_t Matmul::multiply(const cublasLtMatmulHeuristicResult_t& kernel, cudaStream_t stream) const {
  const float one = 1.0F;
  const float beta = operands_.accumulate ? 1.0F : 0.0F;
  return cublasLtMatmul(libraries_.blas(), operation_, &one, operands_.a, a_, operands_.b, b_, &beta, operands_.d, d_,
                        operands_.d, d_, &kernel.algo, workspace_, kernel.workspaceSize, stream);
}

void Matmul::run(cudaStream_t stream) const {
  check(multiply(choice_->kernels[choice_->chosen], stream), "cublasLtMatmul");
}

}  // namespace strata::cuda
