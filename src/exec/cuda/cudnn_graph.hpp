#pragma once

/// @file
/// Operation graphs of cuDNN's backend API: descriptors that own themselves, tensors and operations between them, and
/// the choice among the engines for a graph. cuDNN recognises some graphs and has one kernel for the whole.

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace strata::cuda {

inline constexpr cudnnDataType_t bf16_type = CUDNN_DATA_BFLOAT16;
inline constexpr cudnnDataType_t f32_type = CUDNN_DATA_FLOAT;

/// cuDNN's account of the last call that it refused.
std::string last_dnn_error();

/// Strides of a tensor without gaps, the last dim the fastest.
constexpr std::array<std::int64_t, 4> packed(const std::array<std::int64_t, 4>& n) {
  return {n[1] * n[2] * n[3], n[2] * n[3], n[3], 1};
}

class BackendDescriptor {
 public:
  explicit BackendDescriptor(cudnnBackendDescriptorType_t type);
  ~BackendDescriptor();
  BackendDescriptor(BackendDescriptor&& other) noexcept;
  BackendDescriptor& operator=(BackendDescriptor&& other) noexcept;
  BackendDescriptor(const BackendDescriptor&) = delete;
  BackendDescriptor& operator=(const BackendDescriptor&) = delete;

  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::span<const T> values) {
    set_values(name, type, static_cast<std::int64_t>(values.size()), static_cast<const void*>(values.data()));
  }
  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set_values(name, type, 1, static_cast<const void*>(&value));
  }
  void set(cudnnBackendAttributeName_t name, const BackendDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
  }
  /// @throws InternalError where cuDNN refuses.
  void finalize();
  /// @return whether cuDNN takes it; last_dnn_error() says why not.
  bool try_finalize() { return cudnnBackendFinalize(descriptor_) == CUDNN_STATUS_SUCCESS; }

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  std::int64_t integer(cudnnBackendAttributeName_t name) const;
  /// Of an engine's configuration: cuDNN does not promise equal bits for equal inputs.
  bool is_nondeterministic() const;
  /// At most @p most descriptors that cuDNN fills in.
  std::vector<BackendDescriptor> descriptors(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                             std::int64_t most) const;

 private:
  void set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                  const void* values);
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// Tensors have four dims; those of operations belong to the graph.
class OperationGraph {
 public:
  using Extents = std::array<std::int64_t, 4>;
  static constexpr std::int64_t alignment_bytes = 16;
  struct Tensor {
    cudnnBackendDescriptor_t descriptor = nullptr;
    Extents extents{};
  };

  /// In memory, whose address is given by @p id where the graph runs: a multiple of @ref alignment_bytes.
  Tensor in_memory(std::int64_t id, cudnnDataType_t type, const Extents& extents, const Extents& strides);
  /// An f32 number of the host, read through its address where the graph runs.
  Tensor number(std::int64_t id);
  /// Between operations: packed, and nowhere in memory.
  Tensor between(cudnnDataType_t type, const Extents& extents);
  Tensor between(cudnnDataType_t type, const Extents& extents, const Extents& strides);

  void pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& y);
  void pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b, const Tensor& y);
  /// y = condition ? x : b
  void select(const Tensor& x, const Tensor& b, const Tensor& condition, const Tensor& y);
  /// y = the index along @p dim of each of its elements. @param like of y's extents, not read.
  void index(const Tensor& like, std::int64_t dim, const Tensor& y);
  void compare(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b, const Tensor& y);
  /// y = x * weight of extents [n, c, h, w] and [out, in, h, w], summed in f32.
  void convolution(const Tensor& x, const Tensor& weight, const Tensor& y, std::int64_t padding, std::int64_t stride);
  /// c = a · b over the last two dims; heads of b may serve several of a.
  void matmul(const Tensor& a, const Tensor& b, const Tensor& c);
  /// Over the dims in which y has one element, or fewer than x.
  void reduce(cudnnReduceTensorOp_t op, const Tensor& x, const Tensor& y);
  /// The same elements seen with y's extents and strides.
  void reshape(const Tensor& x, const Tensor& y);

  /// @param handle null for a graph that is planned without a device. @throws Unsupported where cuDNN refuses it.
  BackendDescriptor finish(cudnnHandle_t handle);

 private:
  Tensor tensor(std::int64_t id, cudnnDataType_t type, const Extents& extents, const Extents& strides, bool is_virtual,
                bool by_value);
  using Operand = std::pair<cudnnBackendAttributeName_t, cudnnBackendDescriptor_t>;
  /// Finalizes the operation, with @p operands beside what it has.
  void add(BackendDescriptor operation, std::initializer_list<Operand> operands);
  /// Finalizes what an operation is; it belongs to the graph.
  cudnnBackendDescriptor_t keep(BackendDescriptor what);
  void add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t arithmetic, std::int64_t axis,
                     std::initializer_list<Tensor> inputs, const Tensor& y);
  std::vector<BackendDescriptor> descriptors_;        ///< of tensors, and what operations are
  std::vector<cudnnBackendDescriptor_t> operations_;  ///< of descriptors_, in order
  std::int64_t next_id_ = std::int64_t{1} << 32;      ///< of tensors that have no name
};

/// For which GPU: that of a handle, or one described by a finalized CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR.
struct PlanDevice {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t properties = nullptr;
};

/// A finalized CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR.
struct Engine {
  BackendDescriptor plan;
  std::int64_t workspace_bytes = 0;
};

struct FoundEngine {
  std::optional<Engine> engine;
  std::string error;  ///< where there is none: what cuDNN says of the last one, or how many bytes they need
};

/// The fastest for a finished graph, by cuDNN's own account, of those that fit into @p most_workspace_bytes.
/// @param deterministic only those that promise equal bits.
FoundEngine fastest_engine(const PlanDevice& device, const BackendDescriptor& graph, bool deterministic,
                           std::int64_t most_workspace_bytes);

}  // namespace strata::cuda
