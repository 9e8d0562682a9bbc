#pragma once

/// @file
/// What OSDP calls an operator: a part of the model whose states are held one way. By default an attention block, an
/// MLP block, the embedding and the head, so that L layers are the 2L + 2 operators of the paper's table 1; finer, each
/// linear.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

enum class Granularity : std::uint8_t { block, linear };
/// @throws UserError listing the accepted words.
Granularity parse_granularity(std::string_view text);

struct OperatorUnit {
  std::vector<int> operators;   ///< of the graph, rising
  std::vector<int> parameters;  ///< of the graph, rising; each in one unit alone
  int block = -1;               ///< -1: outside of every block
  /// What its operators with parameters match, within the block: "attn.*", "resize"; outside of blocks whole names.
  std::vector<std::string> patterns;
};

/// In forward order; every operator of the graph is in one unit.
///
/// block: operators of a block whose names share their first word (attn, mlp) are one. What stands alone beside such
/// groups (a projection between widths, a norm) belongs to the next one of its block; in blocks without groups (a
/// VGG's) each linear or convolution is a unit. Outside of blocks each embedding, linear and convolution is one, and a
/// norm belongs to the next. linear: so everywhere. Units that share a parameter (a head tied to the embedding) are
/// one.
std::vector<OperatorUnit> operator_units(const ModelGraph& graph, Granularity granularity);

/// "block[3].attn.qkv" → "attn.qkv"; outside of blocks the whole name.
std::string name_within_block(const ModelGraph& graph, const Operator& op);

/// By operator of the graph: how often a micro-batch gathers its parameters where they are sharded.
struct Gathers {
  int of_weight = 0;  ///< of the first parameter, which the backward of a linear, convolution or norm reads
  int of_others = 0;
  bool recomputed = false;  ///< it runs again before the backward of its block
};
/// A count in closed form, by which costs order choices. As lowering does: before forward, before it is recomputed
/// where the plan says so and its outputs are needed, before a backward that reads them unless the recomputation's are
/// kept (gathered_after_recompute = keep).
std::vector<Gathers> gathers_of(const ModelGraph& graph, const Plan& plan);

}  // namespace strata
