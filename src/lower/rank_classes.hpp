#pragma once

/// @file
/// Which ranks of a plan do the same: their Programs are equal up to renaming of ranks, and their groups have the same
/// shape on the nodes. What is simulated, counted or printed for one holds for all of its class.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

struct RankClasses {
  std::vector<int> class_of_rank;    ///< by world rank
  std::vector<int> representatives;  ///< by class: its lowest rank
};

/// Ranks are equal where they differ along the data axis alone, have equally many samples, hold shards of equal sizes,
/// share them under equally many leaf switches, and all of this holds of those they share them with. Chunks of a
/// collective that the ranks do not divide differ by an element or are empty at the end; times are taken from the full
/// tensor, so they separate nobody. Takes time and memory in proportion to the ranks.
/// @param leaf_of_node by node of the job; empty: leaves make no difference.
RankClasses rank_classes(const Plan& plan, const ModelGraph& graph, std::span<const int> leaf_of_node = {});

/// Ranks of which one needs more memory than any other of the plan: what is needed to know its peak without lowering
/// every rank, of which a thousand may each hold other tensors. At any moment of a step ranks that differ along the
/// data axis alone differ in bytes by the shards that are held until the next step and by those of gradients that are
/// kept then, which the step's order tells; for each such moment the rank with most of both is among these, once. To
/// lower all of them instead would take a thousand Programs where whole tensors are dealt to a thousand ranks.
/// @throws Unsupported where refuse_what_is_missing() does.
std::vector<int> fullest_ranks(const Plan& plan, const ModelGraph& graph);

}  // namespace strata
