#include "exec/cuda/cudnn_graph.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "exec/cuda/libraries.hpp"

namespace strata::cuda {
namespace {

/// @throws InternalError with cuDNN's account of the last error.
void check_last(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw InternalError(fmt::format("cuDNN: {}: {}: {}", what, cudnnGetErrorString(status), last_dnn_error()));
}

}  // namespace

std::string last_dnn_error() {
  std::array<char, 512> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  return text.data();
}

BackendDescriptor::BackendDescriptor(cudnnBackendDescriptorType_t type) {
  check_last(cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}

BackendDescriptor::~BackendDescriptor() {
  // Nothing can be done about a failure here.
  if (descriptor_ != nullptr) static_cast<void>(cudnnBackendDestroyDescriptor(descriptor_));
}

BackendDescriptor::BackendDescriptor(BackendDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}

BackendDescriptor& BackendDescriptor::operator=(BackendDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void BackendDescriptor::set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                   std::int64_t count, const void* values) {
  check_last(cudnnBackendSetAttribute(descriptor_, name, type, count, values),
             fmt::format("cudnnBackendSetAttribute({})", static_cast<int>(name)).c_str());
}

void BackendDescriptor::finalize() { check_last(cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize"); }

std::int64_t BackendDescriptor::integer(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  std::int64_t count = 0;
  check_last(cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_INT64, 1, &count, &value),
             fmt::format("cudnnBackendGetAttribute({})", static_cast<int>(name)).c_str());
  return value;
}

bool BackendDescriptor::is_nondeterministic() const {
  const BackendDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  check_last(cudnnBackendGetAttribute(descriptor_, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                      &count, static_cast<void*>(&raw)),
             "the engine of a configuration");
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  check_last(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                      static_cast<std::int64_t>(notes.size()), &count, notes.data()),
             "the numerical notes of an engine");
  return std::ranges::count(std::span(notes).first(static_cast<std::size_t>(count)),
                            CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) > 0;
}

std::vector<BackendDescriptor> BackendDescriptor::descriptors(cudnnBackendAttributeName_t name,
                                                              cudnnBackendDescriptorType_t type,
                                                              std::int64_t most) const {
  std::vector<BackendDescriptor> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < most; ++i) raw.push_back(all.emplace_back(type).get());
  std::int64_t count = 0;
  check_last(cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count,
                                      static_cast<void*>(raw.data())),
             fmt::format("cudnnBackendGetAttribute({})", static_cast<int>(name)).c_str());
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
  return all;
}

OperationGraph::Tensor OperationGraph::tensor(std::int64_t id, cudnnDataType_t type, const Extents& extents,
                                              const Extents& strides, bool is_virtual, bool by_value) {
  BackendDescriptor& d = descriptors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  d.set<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span(extents));
  d.set<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span(strides));
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment_bytes);
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  d.finalize();
  return {d.get(), extents};
}

OperationGraph::Tensor OperationGraph::in_memory(std::int64_t id, cudnnDataType_t type, const Extents& extents,
                                                 const Extents& strides) {
  return tensor(id, type, extents, strides, false, false);
}

OperationGraph::Tensor OperationGraph::number(std::int64_t id) {
  return tensor(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

OperationGraph::Tensor OperationGraph::between(cudnnDataType_t type, const Extents& extents) {
  return between(type, extents, packed(extents));
}

OperationGraph::Tensor OperationGraph::between(cudnnDataType_t type, const Extents& extents, const Extents& strides) {
  return tensor(next_id_++, type, extents, strides, true, false);
}

void OperationGraph::add(BackendDescriptor operation, std::initializer_list<Operand> operands) {
  for (const auto& [name, descriptor] : operands) operation.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, descriptor);
  operation.finalize();
  operations_.push_back(operation.get());
  descriptors_.push_back(std::move(operation));
}

cudnnBackendDescriptor_t OperationGraph::keep(BackendDescriptor what) {
  what.finalize();
  return descriptors_.emplace_back(std::move(what)).get();
}

void OperationGraph::add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t arithmetic, std::int64_t axis,
                                   std::initializer_list<Tensor> inputs, const Tensor& y) {
  BackendDescriptor what(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  what.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, arithmetic);
  if (axis >= 0) what.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  BackendDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  constexpr std::array names = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  std::size_t i = 0;
  for (const Tensor& input : inputs) {
    operation.set(names[i++], CUDNN_TYPE_BACKEND_DESCRIPTOR, input.descriptor);
  }
  add(std::move(operation), {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(what))},
                             {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor}});
}

void OperationGraph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& y) {
  add_pointwise(mode, CUDNN_DATA_FLOAT, -1, {x}, y);
}

void OperationGraph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b, const Tensor& y) {
  add_pointwise(mode, CUDNN_DATA_FLOAT, -1, {x, b}, y);
}

void OperationGraph::select(const Tensor& x, const Tensor& b, const Tensor& condition, const Tensor& y) {
  add_pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, {x, b, condition}, y);
}

void OperationGraph::index(const Tensor& like, std::int64_t dim, const Tensor& y) {
  add_pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, dim, {like}, y);
}

void OperationGraph::compare(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b, const Tensor& y) {
  add_pointwise(mode, CUDNN_DATA_BOOLEAN, -1, {x, b}, y);
}

void OperationGraph::convolution(const Tensor& x, const Tensor& weight, const Tensor& y, std::int64_t padding,
                                 std::int64_t stride) {
  constexpr std::int64_t dims = 2;
  const auto set_both = [&](BackendDescriptor& to, cudnnBackendAttributeName_t name, std::int64_t value) {
    const std::array<std::int64_t, dims> values = {value, value};
    to.set<std::int64_t>(name, CUDNN_TYPE_INT64, std::span(values));
  };
  BackendDescriptor what(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  what.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  what.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  what.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, dims);
  set_both(what, CUDNN_ATTR_CONVOLUTION_DILATIONS, 1);
  set_both(what, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
  set_both(what, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding);
  set_both(what, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
  BackendDescriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 0.0F);
  add(std::move(operation), {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, keep(std::move(what))},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x.descriptor},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight.descriptor},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y.descriptor}});
}

void OperationGraph::matmul(const Tensor& a, const Tensor& b, const Tensor& c) {
  BackendDescriptor what(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  what.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  add(BackendDescriptor(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR),
      {{CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(what))},
       {CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor},
       {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor},
       {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.descriptor}});
}

void OperationGraph::reduce(cudnnReduceTensorOp_t op, const Tensor& x, const Tensor& y) {
  BackendDescriptor what(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  what.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  what.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
  add(BackendDescriptor(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR),
      {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(what))},
       {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor},
       {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.descriptor}});
}

void OperationGraph::reshape(const Tensor& x, const Tensor& y) {
  add(BackendDescriptor(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR),
      {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor}});
}

BackendDescriptor OperationGraph::finish(cudnnHandle_t handle) {
  BackendDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.set<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      std::span(operations_));
  if (!graph.try_finalize()) throw Unsupported("cuDNN: an operation graph: " + last_dnn_error());
  return graph;
}

FoundEngine fastest_engine(const PlanDevice& device, const BackendDescriptor& graph, bool deterministic,
                           std::int64_t most_workspace_bytes) {
  std::int64_t least_bytes = -1;
  std::string error = "it has no engine for the graph";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    BackendDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (device.properties != nullptr) {
      heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, device.properties);
    }
    if (!heuristic.try_finalize()) {
      error = last_dnn_error();
      continue;
    }
    constexpr std::int64_t most_engines = 32;
    for (const BackendDescriptor& engine :
         heuristic.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, most_engines)) {
      if (deterministic && engine.is_nondeterministic()) {
        error = "its engines do not promise equal bits";
        continue;
      }
      BackendDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
      if (device.properties != nullptr) {
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, device.properties);
      } else {
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, device.handle);
      }
      if (!plan.try_finalize()) {
        error = last_dnn_error();
        continue;
      }
      const std::int64_t bytes = plan.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      if (bytes > most_workspace_bytes) {
        least_bytes = least_bytes < 0 ? bytes : std::min(least_bytes, bytes);
        continue;
      }
      return {Engine{std::move(plan), bytes}, ""};
    }
  }
  if (least_bytes >= 0) error = fmt::format("its engines need {} bytes or more", least_bytes);
  return {std::nullopt, std::move(error)};
}

}  // namespace strata::cuda
