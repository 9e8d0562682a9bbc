#pragma once

/// @file
/// What ZeRO++ puts in the place of a reduce-scatter of gradients (qgZ): blocks of codes (base/quantization.hpp)
/// travel, kernels of the compute stream pack them and add them up. The one decision: a hop is added up, and the next
/// one begun, behind the next operator that begins reductions, so that the transfer runs under that one's backward.
///
/// Source: Wang et al., ZeRO++, sec. 4.3. With n elements over R ranks a node × N nodes, L = ⌈n/(R·N)⌉, q(L) bytes of a
/// packed chunk: the chunks of all ranks are packed in the order (place in the node, node); all-to-all in the node of
/// R·N·q(L) bytes, each rank R pieces of the N chunks of its place; their sum in f32, packed again; all-to-all over the
/// nodes of N·q(L) bytes, each rank N pieces of its own chunk; their sum. A hop of one rank is left out.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/gradient_contributions.hpp"
#include "lower/states/gradient_sums.hpp"
#include "lower/states/shard_groups.hpp"
#include "partition/shards.hpp"

namespace strata {

/// Of the gradient of one parameter and micro-batch.
struct QuantizedReduction {
  struct Hop {
    int group = -1;
    std::int64_t num_packed = 0;  ///< chunks, for all members
    std::int64_t nodes = 1;       ///< they are packed in the order (place in the node, node) of so many nodes
    int pieces = 0;               ///< that are received and added up
    std::int64_t num_summed = 0;  ///< chunks of a piece
    bool operator==(const Hop&) const = default;
  };
  int parameter = -1;
  std::string name{};      ///< of the parameter
  std::int64_t chunk = 0;  ///< elements
  std::vector<Hop> hops{};
  bool operator==(const QuantizedReduction&) const = default;
};

/// All of one step.
struct QuantizedReductions {
  /// What a hop has received is added up.
  struct Sum {
    int reduction = -1;  ///< of `all`
    int hop = 0;
    bool operator==(const Sum&) const = default;
  };
  std::vector<QuantizedReduction> all{};           ///< in the order in which they begin
  std::map<std::pair<int, int>, int> beginning{};  ///< number, by item and parameter of the contribution that begins it
  std::map<std::pair<int, int>, std::vector<Sum>> behind_operator{};  ///< by item and operator of the graph
  std::map<int, std::vector<Sum>> before_item{};                      ///< of an update in backward: all that are left
  std::vector<Sum> behind_backward{};
  bool operator==(const QuantizedReductions&) const = default;
};

/// @param contributions of @p order.  @param shards by parameter.
/// None where gradients are not quantised. Without plan.overlap.reduce_scatter sums have no places: a hop is waited for
/// where it is sent.
QuantizedReductions quantized_reductions(const StepOrder& order, std::span<const GradientContribution> contributions,
                                         const Plan& plan, const ModelGraph& graph,
                                         std::span<const ParameterShard> shards, const ShardGroups& groups);

/// Appends to @p sums that hop @p hop packs @p x and exchanges it. @return the buffer of what it receives.
int exchange(const QuantizedReduction& reduction, int hop, const Operand& x, const Quantization& quantization,
             GradientSums& sums);

/// Appends to @p sums that what hop @p hop has received, @p received, is added up: of the last one into @p own, this
/// rank's part of the gradient, perhaps added to what is there; of an earlier one, to be sent on by the next.
/// @return the buffer of what that one receives, -1: there is none.
int add_up(const QuantizedReduction& reduction, int hop, int received, const Operand& own, bool accumulate,
           const Quantization& quantization, GradientSums& sums);

}  // namespace strata
