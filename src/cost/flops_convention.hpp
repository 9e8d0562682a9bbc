#pragma once

/// @file
/// FLOPs of training under the conventions that papers count with. An MFU names its convention, because they differ by
/// up to a third on one model. Everything is read off the graph, never off a preset's name, so a graph made by hand is
/// counted too; where a convention's formula does not fit a graph it is refused, not bent.

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/model/model_graph.hpp"

namespace strata {

/// FLOPs a token. N: parameters; L: layers; h: hidden size; q: heads · head size; s: sequence; V: vocabulary; f: width
/// of the MLP.
enum class FlopsConvention : std::uint8_t {
  megatron,    ///< 6 · (weights of every linear) + 6 L q s: Megatron-LM today; causal attention halved
  sc21,        ///< c k L h² (1 + s/(6h) + V/(16 L h)), c = 24, with a gated MLP 32; k = 3, with recomputation 4:
               ///< Narayanan et al., SC 2021, eq. 3, whose 96 is c k with recomputation
  internevo,   ///< 3 ((8 + 4r) h² + 4 s h) L + 6 h V, r = f/h, gated 3/2 f/h: InternEvo and AMSP; attention not halved
  palm,        ///< 6 N + 12 L q s: Chowdhery et al. 2022, appendix B; N includes embeddings
  torchtitan,  ///< 6 (N - embeddings) + 12 L q s; a tied table counts, because the head multiplies by it
  operators,   ///< every graph: what its products, convolutions and attention compute, forward and backward
};

std::string_view to_string(FlopsConvention convention);
/// @throws UserError listing the accepted names.
FlopsConvention parse_flops_convention(std::string_view text);
/// What `auto` means: megatron for a transformer, operators for anything else.
FlopsConvention default_flops_convention(const ModelGraph& graph);

/// FLOPs of forward and backward for one position: a token of a transformer, an image of a network on images. A step
/// costs this times samples times graph.positions_per_sample.
/// @param recomputes every block's forward runs twice. Only sc21 counts that; all others are the model's own work.
/// @throws Unsupported naming the convention, the graph and the condition it breaks.
double training_flops_per_position(const ModelGraph& graph, FlopsConvention convention, bool recomputes = false);

}  // namespace strata
