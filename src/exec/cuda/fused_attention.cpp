#include "exec/cuda/fused_attention.hpp"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "exec/cuda/check.hpp"
#include "exec/device/attention_choice.hpp"

namespace strata::cuda {
namespace {

/// 9.10.0 and 9.10.1 have faults that NVIDIA names; until 9.15 so has backward of keys that are no multiple of 128.
void require_version(AttentionPass pass, const AttentionDims& d) {
  constexpr std::size_t of_whole_tiles = 91002;
  constexpr std::size_t of_any = 91600;
  const auto text = [](std::size_t version) {
    return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
  };
  const bool in_parts = pass == AttentionPass::backward && d.seq % 128 != 0;
  const std::size_t version = cudnnGetVersion();
  const std::size_t least = in_parts ? of_any : of_whole_tiles;
  if (version >= least) return;
  throw Unsupported(
      fmt::format("{} of {} positions{} needs cuDNN {} or later, and this is {}; cuda.attention = \"strata\" serves",
                  pass == AttentionPass::forward ? "attention" : "the gradient of attention", d.seq,
                  in_parts ? ", no multiple of 128," : "", text(least), text(version)));
}

/// On later GPUs NVIDIA's own frontend chooses the engine and its settings by numbers that it does not explain.
void require_known_determinism(AttentionPass pass) {
  constexpr int first_unknown = 10;
  int device = 0;
  int major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "the compute capability");
  if (pass == AttentionPass::forward || major < first_unknown) return;
  throw Unsupported(fmt::format(
      "cuda.deterministic: it is not known how cuDNN's gradient of attention has equal bits on GPUs of compute "
      "capability {}.0 and later, and this one's is {}; cuda.attention = \"strata\" serves",
      first_unknown, major));
}

/// Layers are alike, and cuDNN compiles a kernel for each plan.
std::shared_ptr<const AttentionPlan> plan_of(Libraries& libraries, AttentionPass pass, const AttentionDims& d) {
  require_version(pass, d);
  const bool deterministic = libraries.numerics().deterministic;
  if (deterministic) require_known_determinism(pass);
  const Libraries::AttentionKey key = {pass == AttentionPass::forward,
                                       d.causal,
                                       d.dropout_probability != 0.0F,
                                       d.batch,
                                       d.seq,
                                       d.num_heads,
                                       d.num_kv_heads,
                                       d.head_dim};
  std::shared_ptr<const AttentionPlan>& plan = libraries.attention_plans()[key];
  if (plan == nullptr) {
    plan = std::make_shared<const AttentionPlan>(PlanDevice{.handle = libraries.dnn()}, pass, d, deterministic,
                                                 pass == AttentionPass::forward
                                                     ? cudnn_forward_workspace_bytes
                                                     : cudnn_backward_workspace(d, deterministic).library);
  }
  return plan;
}

}  // namespace

/// What cuDNN is given at each run. Numbers are read from here, so it stays where it is.
struct FusedAttention::Call {
  Call(Libraries& libraries, AttentionPass pass, const AttentionDims& d, const AttentionAddresses& a,
       std::span<std::byte> workspace)
      : plan(plan_of(libraries, pass, d)),
        handle(libraries.dnn()),
        scale(1.0F / std::sqrt(static_cast<float>(d.head_dim))),
        dropout_scale(1.0F / (1.0F - d.dropout_probability)) {
    const bool forward = pass == AttentionPass::forward;
    const bool deterministic = libraries.numerics().deterministic;
    const CudnnBackwardWorkspace backward_workspace = cudnn_backward_workspace(d, deterministic);
    const std::int64_t mask_bytes = dropout_mask_bytes(d);
    const std::int64_t needed = forward ? mask_bytes + cudnn_forward_workspace_bytes : backward_workspace.total();
    STRATA_INVARIANT(static_cast<std::int64_t>(workspace.size()) >= needed, "an attention's workspace");
    // Heads of q, of k, of v stand side by side at each position.
    const std::int64_t first_k = d.num_heads * d.head_dim * size_of(DType::bf16);
    const std::int64_t first_v = first_k + d.num_kv_heads * d.head_dim * size_of(DType::bf16);
    using Operand = AttentionOperand;
    std::vector<std::pair<Operand, void*>> operands = {
        {Operand::q, a.qkv}, {Operand::k, a.qkv + first_k},         {Operand::v, a.qkv + first_v},
        {Operand::y, a.y},   {Operand::log_sum_exp, a.log_sum_exp}, {Operand::scale, &scale}};
    if (d.causal) operands.emplace_back(Operand::minus_infinity, &minus_infinity);
    std::byte* scratch = workspace.data();
    if (mask_bytes > 0) {
      operands.insert(operands.end(), {{Operand::dropout_mask, scratch}, {Operand::dropout_scale, &dropout_scale}});
    }
    scratch += mask_bytes;
    if (!forward) {
      operands.insert(operands.end(), {{Operand::dy, a.dy},
                                       {Operand::dq, a.dqkv},
                                       {Operand::dk, a.dqkv + first_k},
                                       {Operand::dv, a.dqkv + first_v},
                                       {Operand::one, &one},
                                       {Operand::output_products, scratch}});
      scratch += backward_workspace.output_products;
      if (!deterministic) operands.emplace_back(Operand::query_sums, scratch);
      scratch += backward_workspace.query_sums;
    }
    std::vector<std::int64_t> ids;
    std::vector<void*> pointers;
    for (const auto& [operand, address] : operands) {
      const bool is_number = operand == Operand::scale || operand == Operand::one ||
                             operand == Operand::minus_infinity || operand == Operand::dropout_scale;
      STRATA_INVARIANT(is_number || reinterpret_cast<std::uintptr_t>(address) % OperationGraph::alignment_bytes == 0,
                       "an operand of cuDNN's attention begins where it cannot");
      ids.push_back(static_cast<std::int64_t>(operand));
      pointers.push_back(address);
    }
    addresses.set<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span(ids));
    addresses.set<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span(pointers));
    addresses.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(scratch));
    addresses.finalize();
  }

  std::shared_ptr<const AttentionPlan> plan;
  cudnnHandle_t handle;
  float scale;
  float dropout_scale;
  float one = 1.0F;
  float minus_infinity = -std::numeric_limits<float>::infinity();
  BackendDescriptor addresses{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR};
};

FusedAttention::FusedAttention(Libraries& libraries, AttentionPass pass, const AttentionDims& dims,
                               const AttentionAddresses& addresses, std::span<std::byte> workspace)
    : call_(std::make_unique<const Call>(libraries, pass, dims, addresses, workspace)) {}

FusedAttention::~FusedAttention() = default;

void FusedAttention::run(cudaStream_t stream) const {
  check(cudnnSetStream(call_->handle, stream), "cudnnSetStream");
  check(cudnnBackendExecute(call_->handle, call_->plan->get(), call_->addresses.get()), "cudnnBackendExecute");
}

}  // namespace strata::cuda
