#pragma once

/// @file
/// When two blocks are interchangeable: the rule behind Block::shape_class, used by who assigns classes and by verify.

#include "ir/model/model_graph.hpp"

namespace strata {

/// True if the operators of both blocks have, one by one, equal kinds, attributes, shapes and parameter shapes, equal
/// names after the block's own, and are wired to each other alike. Initial values may differ.
bool same_shape(const ModelGraph& graph, const Block& a, const Block& b);

/// Give every block the number of the first block that it equals, numbers counting up from 0 in order.
void assign_shape_classes(ModelGraph& graph);

}  // namespace strata
