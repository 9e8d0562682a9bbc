#pragma once

/// @file
/// What ZeRO++ puts in the place of an all-gather of parameters (qwZ) and of a reduce-scatter of gradients (qgZ):
/// blocks of codes (base/quantization.hpp) travel, kernels of the compute stream pack them and put them together again.
/// The one decision: those kernels are issued when their result is wanted, not when the transfer was asked for, so that
/// what a transfer runs under is not stopped by the kernel that waits for it.
///
/// Source: Wang et al., ZeRO++, sec. 4.1 and 4.3. With n elements over R ranks a node × N nodes, L = ⌈n/(R·N)⌉, q(L)
/// bytes of a packed chunk:
/// - gather: every rank packs its shard as one chunk; all-gather of R·N·q(L) bytes.
/// - reduce: the chunks of all ranks are packed in the order (place in the node, node); all-to-all in the node of
///   R·N·q(L) bytes, each rank R pieces of the N chunks of its place; their sum in f32, packed again; all-to-all over
///   the nodes of N·q(L) bytes, each rank N pieces of its own chunk; their sum. A hop of one rank is left out.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/shard_groups.hpp"
#include "lower/step/builder.hpp"

namespace strata {

/// Stateless but for what it is given.
class QuantizedGather {
 public:
  QuantizedGather(const Quantization& quantization, ProgramBuilder& builder)
      : quantization_(quantization), builder_(builder) {}

  /// Packs @p shard and sends it. @return the buffer that holds all packed shards once they are there.
  int start(const Parameter& parameter, const Operand& shard, const ShardGroups::Set& groups, Phase phase,
            int micro_batch);
  /// @p packed of start() becomes @p gathered, all elements of the parameter.
  void finish(const Parameter& parameter, int packed, const Operand& gathered, const ShardGroups::Set& groups,
              Phase phase, int micro_batch);

 private:
  const Quantization& quantization_;
  ProgramBuilder& builder_;
};

class QuantizedReduction {
 public:
  /// @param overlaps a transfer runs under the backward of later operators; otherwise it is waited for where it stands.
  QuantizedReduction(const Quantization& quantization, bool overlaps, ProgramBuilder& builder)
      : quantization_(quantization), overlaps_(overlaps), builder_(builder) {}

  /// The sum of @p full over the ranks of @p factor, of which @p own is this rank's part, (+)= into @p own: issued by
  /// and by, complete after finish().
  void reduce(const std::string& name, const Operand& full, const Factor& factor, const ShardGroups::Set& groups,
              const Operand& own, bool accumulate);
  /// What was begun before the last operator with gradients goes a hop further.
  void after_operator();
  void finish();

 private:
  struct Pending {
    std::string name;
    Operand own;
    bool accumulate = false;
    std::int64_t chunk = 0;   ///< elements
    std::int64_t chunks = 0;  ///< a piece, of what `received` holds
    int pieces = 0;           ///< in `received`
    int received = -1;        ///< buffer
    int next_group = -1;      ///< of the hop across nodes, -1: there is none left
    bool is_new = true;
  };
  int bits() const { return quantization_.gradients == "int4" ? 4 : 8; }
  /// Packs @p x and exchanges it; @return the buffer of what was received.
  int send(const Pending& pending, const Operand& x, std::int64_t chunks, std::int64_t nodes, int group);
  /// Issues the next hop of @p pending. @return true if it was the last.
  bool advance(Pending& pending);
  void advance_all(bool new_ones_too);

  const Quantization& quantization_;
  bool overlaps_;
  ProgramBuilder& builder_;
  std::vector<Pending> pending_;  ///< in the order in which they began
};

}  // namespace strata
