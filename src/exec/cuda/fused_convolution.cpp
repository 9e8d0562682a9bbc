#include "exec/cuda/fused_convolution.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/console.hpp"
#include "base/error.hpp"
#include "exec/cuda/convolution_plan.hpp"
#include "exec/device/workspace.hpp"

namespace strata::cuda {
namespace {

/// Layers and micro-batches are alike, and cuDNN compiles a kernel for each plan. @return null where it has none.
std::shared_ptr<const ConvolutionPlan> plan_of(Libraries& libraries, const ConvolutionDims& d) {
  auto& plans = libraries.convolution_plans();
  const auto known = std::ranges::find(plans, d, [](const auto& entry) { return entry.first; });
  if (known != plans.end()) return known->second;
  std::shared_ptr<const ConvolutionPlan> plan;
  try {
    plan = std::make_shared<const ConvolutionPlan>(PlanDevice{.handle = libraries.dnn()}, d,
                                                   libraries.numerics().deterministic, convolution_workspace_bytes(d));
  } catch (const Unsupported& refusal) {
    say_error("strata: warning: {}; bias and ReLU take a pass of their own\n", refusal.what());
  }
  plans.emplace_back(d, plan);
  return plan;
}

}  // namespace

/// What cuDNN is given at each run.
struct FusedConvolution::Call {
  Call(Libraries& libraries, const ConvolutionDims& d, const ConvolutionAddresses& a, std::span<std::byte> workspace)
      : plan(plan_of(libraries, d)), handle(libraries.dnn()) {
    if (plan == nullptr) return;
    using Operand = ConvolutionOperand;
    constexpr std::array operands = {Operand::x, Operand::weight, Operand::bias, Operand::y};
    std::array<std::int64_t, operands.size()> ids{};
    std::ranges::transform(operands, ids.begin(), [](Operand operand) { return static_cast<std::int64_t>(operand); });
    const std::array<void*, operands.size()> pointers = {a.x, a.weight, a.bias, a.y};
    addresses.set<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span(ids));
    addresses.set<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span(pointers));
    addresses.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(workspace.data()));
    addresses.finalize();
  }

  std::shared_ptr<const ConvolutionPlan> plan;
  cudnnHandle_t handle;
  BackendDescriptor addresses{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR};
};

std::shared_ptr<const FusedConvolution> FusedConvolution::if_there(Libraries& libraries, const ConvolutionDims& dims,
                                                                   const ConvolutionAddresses& addresses,
                                                                   std::span<std::byte> workspace) {
  if (*fused_convolution_condition(dims) != '\0') return nullptr;
  for (const std::byte* const address : {addresses.x, addresses.weight, addresses.bias, addresses.y}) {
    if (reinterpret_cast<std::uintptr_t>(address) % OperationGraph::alignment_bytes != 0) return nullptr;
  }
  const auto fused = std::make_shared<const FusedConvolution>(libraries, dims, addresses, workspace);
  return fused->call_->plan == nullptr ? nullptr : fused;
}

FusedConvolution::FusedConvolution(Libraries& libraries, const ConvolutionDims& dims,
                                   const ConvolutionAddresses& addresses, std::span<std::byte> workspace)
    : call_(std::make_unique<const Call>(libraries, dims, addresses, workspace)) {}

FusedConvolution::~FusedConvolution() = default;

void FusedConvolution::run(cudaStream_t stream) const {
  check(cudnnSetStream(call_->handle, stream), "cudnnSetStream");
  check(cudnnBackendExecute(call_->handle, call_->plan->get(), call_->addresses.get()), "cudnnBackendExecute");
}

}  // namespace strata::cuda
