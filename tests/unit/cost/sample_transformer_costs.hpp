#pragma once

/// @file
/// A cluster on which every part of the closed form is negligible until a test makes it count, and a small run on it.

#include "ir/machine/cluster.hpp"
#include "ir/machine/transformer_run.hpp"

namespace strata {

/// Rates of 1e30 and times of 1e-30: whatever a test sets is all there is.
inline Cluster weightless_cluster() {
  Cluster cluster;
  cluster.name = "weightless";
  cluster.nodes = 4;
  cluster.devices_per_node = 8;
  cluster.peak_flops_per_second = {{"f16", 1e30}};
  cluster.memory_bandwidth_bytes_per_second = 1e30;
  cluster.intra_node = {1e-6, 1e11};
  cluster.inter_node = {1e-5, 1e10};
  TransformerCosts& costs = cluster.transformer_costs.emplace();
  for (const TransformerCostField& field : transformer_cost_fields()) {
    const bool is_bandwidth = field.key.ends_with("bandwidth_bytes_per_second");
    costs.*field.value = field.is_share ? 1.0 : is_bandwidth ? 1e30 : 1e-30;
  }
  costs.full_node_launch_factor = 1.0;
  costs.launch_overlap_exponent = 2.0;
  costs.vocabulary_size = 512;
  return cluster;
}

inline TransformerRun small_run() {
  return {.hidden_size = 256,
          .attention_heads = 8,
          .layers = 12,
          .sequence_length = 128,
          .vocabulary_size = 512,
          .global_batch = 64,
          .micro_batch = 4};
}

}  // namespace strata
