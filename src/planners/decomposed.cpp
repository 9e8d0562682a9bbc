/// @file
/// Tensor parallelism whose gathers and scatters are taken apart and run under the products that they belong to.
///
/// Source:     Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning
///             Models", ASPLOS 2023.
/// Idea:       a product of a gathered tensor is the sum of products of its blocks, and a block of a scattered sum one
///             of parts of it: while a rank multiplies one block, that goes on around a ring of ranks, and the next one
///             comes.
/// Symbols:    as `megatron`: dp x tp ranks, m x k times k x n a product; t = tp blocks, of k/t inputs or n/t outputs.
/// Decides:    `megatron`'s degrees, the same for all layers, with algorithm = ring for all linears; the embedding
///             looks up and scatters its sums as `megatron` does. Mesh axis: stage, as `megatron`.
/// Memory:     as `megatron`, but of inputs of columns only the rank's own block is kept for backward, mk/(dp tp), and
///             of what others have no more than two blocks a direction are held, beside a block of a product that is to
///             be added to a sum; weights whose blocks are no neighbours, those cut by columns, are packed while they
///             multiply, kn/tp (layouts/lasting_bytes.hpp).
/// Volume:     elements a rank and pair of layers sends forward: (tp-1)/tp mk/dp of inputs and (tp-1)/tp mn/dp of sums,
///             as `megatron`; backward the same of gradients, and inputs once more, (tp-1)/tp mk/dp, for the gradient
///             of columns; each in tp-1 messages to one neighbour, or half of them to either with directions = 2.
///             Weight gradients and statistics as `megatron` (layouts/volume.hpp).
/// Reference:  `single`.
/// Options:    tensor (a factor, or planner), tensor_in_node, directions (1, 2), zero, stages, schedule, chunks,
///             cut_by, cost.
/// Refuses:    as `megatron`.
/// Differs:    blocks are of features, as tensors stand between pairs (Wang et al. also cut rows); one direction or two
///             is for the user to say, and the two blocks of a step with two directions are multiplied one after the
///             other, where the paper joins them into one product; every linear is taken apart, where the paper's
///             compiler weighs each; a step's product is added to the sum by a kernel of its own. The degrees are those
///             that communicate least if nothing is hidden, as `megatron`'s.
/// Reproduces: the baseline of Oases' figures 4 and 5.

#include <array>

#include "planners/layouts/uniform_degrees.hpp"

namespace strata {
namespace {

class Decomposed final : public Planner {
 public:
  std::string_view name() const override { return "decomposed"; }
  std::string_view summary() const override {
    return "`megatron` with products block by block around a ring: what a block waits for travels under the block "
           "before";
  }
  std::string_view source() const override {
    return "Wang et al., Overlap Communication with Dependent Computation via Decomposition, 2023";
  }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        tensor_option(),
        tensor_in_node_option(),
        OptionRow{
            "directions", std::int64_t{1}, ">= 1 and <= 2",
            "in which blocks go round; 2: half of them each way, so that every message has two products to travel "
            "under"},
        zero_option(),
        stage_options()[0],
        stage_options()[1],
        stage_options()[2],
        stage_options()[3],
        link_cost_option(),
    };
    return rows;
  }

  Plan plan(const PlanRequest& request) const override {
    const auto directions = static_cast<int>(request.option<std::int64_t>("directions"));
    return cheapest_uniform_degrees(
        request, LayoutPlanning(request, {}, MatmulAlgorithm::ring, PartialSums::scatter, directions));
  }
};

}  // namespace

const Planner& decomposed_planner() {
  static const Decomposed planner;
  return planner;
}

}  // namespace strata
