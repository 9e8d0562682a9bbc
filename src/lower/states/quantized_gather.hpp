#pragma once

/// @file
/// What ZeRO++ puts in the place of an all-gather of parameters (qwZ): blocks of codes (base/quantization.hpp) travel,
/// kernels of the compute stream pack them and put them together again. The one decision: those kernels are issued when
/// their result is wanted, not when the transfer was asked for, so that what a transfer runs under is not stopped by
/// the kernel that waits for it.
///
/// Source: Wang et al., ZeRO++, sec. 4.1. With n elements over R ranks a node × N nodes, L = ⌈n/(R·N)⌉, q(L) bytes of a
/// packed chunk: every rank packs its shard as one chunk; all-gather of R·N·q(L) bytes.

#include <cstdint>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/shard_groups.hpp"
#include "lower/step/builder.hpp"

namespace strata {

/// Of kernels that pack and unpack @p chunks chunks of @p chunk numbers, @p elements in all.
Attributes quantized_attributes(std::int64_t elements, std::int64_t chunk, std::int64_t chunks, int block, int bits);

/// Stateless but for what it is given.
class QuantizedGather {
 public:
  QuantizedGather(const Quantization& quantization, ProgramBuilder& builder)
      : quantization_(quantization), builder_(builder) {}

  /// Packs @p shard and sends it. @return the buffer that holds all packed shards once they are there.
  int start(const Place& here, const Parameter& parameter, const Operand& shard, const ShardGroups::Set& groups,
            Phase phase, int micro_batch);
  /// @p packed of start() becomes @p gathered, all elements of the parameter.
  void finish(const Place& here, const Parameter& parameter, int packed, const Operand& gathered,
              const ShardGroups::Set& groups, Phase phase, int micro_batch);

 private:
  const Quantization& quantization_;
  ProgramBuilder& builder_;
};

}  // namespace strata
