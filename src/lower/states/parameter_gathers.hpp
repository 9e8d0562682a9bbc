#pragma once

/// @file
/// Which sharded parameters are gathered where, and which of these copies each kernel reads: a value that is computed
/// before anything is lowered, by going along the order of the step once; gather_emission looks it up.
///
/// When a parameter is gathered is said by the plan's overlap (AMSP, table V):
///   gather           none: before the operator that reads it, under nothing
///                    next_layer: those of the next block, under this one
///   gather_backward  none: as above
///                    next_module: those of the next operator in backward order, under this one; where that one's block
///                    is recomputed first, all of that block, under the backward of this one
/// Of an operator in slices only the first is gathered with a block: each next one under the slice before it, so that
/// no more than two are there at once. A copy serves all sub-batches, and is let go behind the kernels of its operator
/// for the last of them. What a recomputation has gathered stays for the backward behind it, or is gathered again
/// (gathered_after_recompute).
/// Where parameters have a second shard (ZeRO++), forward keeps it of those alone that backward or a recomputation
/// gathers: neither reads biases or embeddings, unless the operator runs again.
/// Where last step's updates are spread under this step (overlap.broadcast = next_forward), those of a sharded
/// parameter are just before its first gather, and all others at the beginning.

#include <cstdint>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "ir/program/program.hpp"
#include "lower/order/step_shape.hpp"
#include "lower/states/action_range.hpp"
#include "lower/states/by_operator.hpp"
#include "lower/states/shard_groups.hpp"

namespace strata {

struct GatherAction {
  enum class Kind : std::uint8_t {
    spread_last_update,  ///< the p shard is put together from what its ranks updated in the step before
    gather,              ///< `copy` out of the p shards
    gather_secondary,    ///< `copy` out of the second shards
    send_quantized,      ///< the p shards are on their way as blocks of codes
    unpack_quantized,    ///< `copy` out of these
    keep_secondary       ///< this rank's part of the second shards out of `copy`
  };
  Kind kind = Kind::gather;
  int parameter = -1;
  int copy = -1;
  Phase phase = Phase::forward;
  int micro_batch = 0;
  bool operator==(const GatherAction&) const = default;
};

struct ParameterGathers {
  /// The kernels of an operator, in an item of the order.
  struct OfOperator {
    ActionRange before{};
    /// By parameter of the operator: which copy is there; -1: none, it is not sharded or nobody reads it here.
    std::vector<int> copies{};
    bool operator==(const OfOperator&) const = default;
  };

  int num_copies = 0;
  /// By copy: it is the second shard, which this rank has whole.
  std::vector<bool> is_second_shard{};
  std::vector<GatherAction> actions{};  ///< in the order in which they are issued
  ActionRange at_beginning{};
  ByOperator<OfOperator> of_operator{};
  bool operator==(const ParameterGathers&) const = default;
};

/// Of a rank, which holds the segments that its items have. @param recomputation by segment of @p order.
ParameterGathers parameter_gathers(const StepOrder& order, std::span<const SegmentRecomputation> recomputation,
                                   const Plan& plan, const ModelGraph& graph, const ShardGroups& groups);

}  // namespace strata
