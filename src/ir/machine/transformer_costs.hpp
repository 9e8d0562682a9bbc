#pragma once

/// @file
/// What a machine's software stack reached in measured training iterations of transformers: the fitted parameters of
/// cost/transformer_iteration.hpp, the section [transformer_costs] of a cluster file. They are effective numbers of
/// whole iterations, not of single kernels or wires; those are the cluster's own fields.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/toml_value.hpp"
#include "ir/machine/transformer_run.hpp"

namespace strata {

/// How much longer a layer of one shape took, forward and backward, than the formula says.
struct LayerRatio {
  std::int64_t hidden_size = 0;
  std::int64_t attention_heads = 0;
  std::int64_t sequence_length = 0;
  std::int64_t tensor = 1;
  std::int64_t micro_batch = 1;
  double ratio = 1.0;
  bool operator==(const LayerRatio&) const = default;
};

struct TransformerCosts {
  // Arithmetic and memory of a layer.
  double product_share = 0.0;     ///< of the peak: matrix products in full waves of large tiles, summed dim unlimited
  double small_tile_share = 0.0;  ///< of that: small tiles
  double half_depth = 0.0;        ///< so short a summed dim halves it
  double attention_share = 0.0;   ///< of the peak: the two batched products of the attention core
  double memory_share = 0.0;      ///< of the memory bandwidth: everything elementwise
  double replicated_bytes = 0.0;  ///< moved a pass for each of b·s·h elements that every rank of a tensor group holds
  double sharded_bytes = 0.0;     ///< the same for elements of which each rank holds 1/t
  double score_bytes = 0.0;       ///< the same for each of b·a·s²/t attention scores
  // The host that launches a layer's kernels, forward and backward.
  double launch_seconds = 0.0;           ///< without tensor parallelism
  double tensor_launch_seconds = 0.0;    ///< with it
  double full_node_launch_factor = 0.0;  ///< of that, where a tensor group fills a node
  double unfused_softmax_seconds = 0.0;  ///< more, where the fused softmax does not apply
  double launch_overlap_exponent = 0.0;  ///< q: device and host overlap as (device^q + host^q)^(1/q)
  // Tensor parallelism: each all-reduce of a layer.
  double tensor_latency_seconds = 0.0;
  double tensor_bandwidth_bytes_per_second = 0.0;  ///< bus bandwidth inside a node; sends to a stage there, too
  // Stages.
  double slot_seconds = 0.0;  ///< one micro-batch through one stage, beside its layers
  // Between nodes.
  double node_bandwidth_bytes_per_second = 0.0;  ///< out of a node, one direction, all its NICs; its ranks share it
  // Output layer and loss.
  double unsharded_head_share =
      0.0;                   ///< of the peak: logits without tensor parallelism, whose vocabulary is not padded
  double head_share = 0.0;   ///< of the peak: logits with it
  double logit_bytes = 0.0;  ///< moved for each of b·s·V/t logits
  // Once a step.
  double update_bytes = 0.0;  ///< moved a parameter by the optimizer
  double step_seconds = 0.0;
  double reduce_seconds = 0.0;                     ///< the gradients' all-reduce: its constant part
  double reduce_bandwidth_bytes_per_second = 0.0;  ///< inside a node
  // What the rows of the measurements do not say.
  std::int64_t vocabulary_size = 0;
  Recomputation recomputation_on_one_node = Recomputation::none;
  Recomputation recomputation_on_many_nodes = Recomputation::none;
  std::string dtype = "f16";         ///< whose peak the shares are of
  std::int64_t multiprocessors = 1;  ///< of a device: so many tiles of a product are computed at once
  /// Measured beside the formula, by shape and micro-batch, in ascending order.
  std::vector<LayerRatio> layers;
  bool operator==(const TransformerCosts&) const = default;
};

/// A fitted number by its key in the file.
struct TransformerCostField {
  std::string_view key;
  double TransformerCosts::*value;
  bool is_share;  ///< of a nameplate: at most 1
};
std::span<const TransformerCostField> transformer_cost_fields();

/// @p reader of the section; every key but `layers` must be there. @throws UserError with file, line and key.
TransformerCosts read_transformer_costs(TomlReader& reader);
/// The section's TOML, its header included.
std::string to_text(const TransformerCosts& costs);
/// @throws UserError naming the key and its number.
void verify(const TransformerCosts& costs);

}  // namespace strata
