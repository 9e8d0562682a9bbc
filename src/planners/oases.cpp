/// @file
/// Oases: tensor parallelism whose sums run under the compute of another sub-batch, across recomputation and backward.
///
/// Source:     Li et al., "Automated Tensor Model Parallelism with Overlapped Communication for Efficient Foundation
///             Model Training" (arXiv 2305.16121), sec. 3; degrees a layer as in its table 6.
/// Idea:       two halves of a batch need nothing of each other, so one computes while the other's sums are on their
///             way; recomputation waits for no gradient, so it is more that they can run under; and what a sum has
///             brought is kept, so that nothing is communicated again.
/// Symbols:    R ranks a node, N nodes; t tensor ranks of a layer, d = R N / t; S sub-batches; B samples, n their
///             elements behind a layer; a layer is attention and MLP.
/// Decides:    (p0, p1, p2) = (d, t, 1) or (d, 1, t) a product, in each layer with its own t; sums that all ranks have;
///             schedule.sub_batches = S, schedule.cross_pass, recompute = after_communication.
/// Memory:     weights, gradients and optimizer states of a layer 1/t; of its activations, 1/d of them, what its two
///             sums have brought, its input and what stands between them (the rest is computed again).
/// Volume:     a rank and layer, forward and backward each: two all-reduces of B n / d, in S parts; none in
///             recomputation (fine_recompute = false: two more, or one where train.recompute = block). Where t rises
///             along the model samples are gathered forward, where it falls backward; weight gradients over d once a
///             step.
/// Reference:  `single`; with sub_batches = 1, fine_recompute = false and without cross_pass: `megatron` with sum =
///             all_reduce, bit for bit.
/// Options:    planner, search, reshard, selective, cost, tensor, degrees, sub_batches, cross_pass, fine_recompute,
///             zero, stages, schedule, chunks, cut_by.
/// Refuses:    degrees that do not divide ranks, or are above the heads, features or words that they cut; as many
///             degrees as the model has no layers; a group of ranks with fewer samples than sub-batches; cross_pass
///             of one sub-batch, or of nothing recomputed; what `megatron` refuses.
/// Planner:    sec. 4's chain of attentions and MLPs (planners/oases/chain.hpp), solved exactly; the answer that the
///             Program finds room for stands beside the best uniform degree, and of the two the simulator has the last
///             word. Without it, in several stages, or where nothing simulates, uniform degrees alone are compared.
/// Differs:    any number of degrees in any order, and of sub-batches; random numbers of dropout are the same when
///             they are drawn again. A gather stands behind the addition to the residual stream, so that one tensor is
///             gathered where two would be between sum and addition: it runs under the other sub-batches' compute in
///             part (reshard = pipelined), or, as the paper counts, under nothing (blocking).
/// Reproduces: columns of table 3: megatron (S = 1, whole_block), merak (S = 2, whole_block, no cross_pass),
///             cross-pass, fine-grained, planner.

#include <array>
#include <string>

#include "planners/layouts/layout_planning.hpp"
#include "planners/oases/turns_planning.hpp"
#include "planners/oases/ways_to_cut.hpp"

namespace strata {
namespace {

class Oases final : public Planner {
 public:
  std::string_view name() const override { return "oases"; }
  std::string_view summary() const override {
    return "tensor parallel in sub-batches whose sums run under each other's compute, across recomputation and "
           "backward";
  }
  std::string_view source() const override {
    return "Li et al., Automated Tensor Model Parallelism with Overlapped Communication, 2023";
  }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        degree_option(),
        degrees_option(),
        OptionRow{"planner", true, "",
                  "a degree each for every attention and MLP, by the paper's chain; else one for all; where tensor = "
                  "planner"},
        OptionRow{"search", std::string("exact"), "exact | exhaustive | authors",
                  "of the chain; authors: two degrees, the smaller one first"},
        OptionRow{"reshard", std::string("pipelined"), "pipelined | blocking",
                  "what the chain counts of gathers between two degrees: those that run under compute less, or all"},
        OptionRow{"selective", false, "",
                  "the planner leaves recomputation out where memory has room, of single attentions and MLPs"},
        OptionRow{"sub_batches", std::int64_t{2}, ">= 0",
                  "parts of a micro-batch that take turns; 0: of 1 to 4 those that take least time"},
        OptionRow{
            "cross_pass", true, "",
            "recomputation and backward are one sequence; else each layer's backward waits for the recomputation"},
        OptionRow{"fine_recompute", true, "",
                  "recomputation begins behind each sum and communicates nothing; else train.recompute says it"},
        zero_option(),
        stage_options()[0],
        stage_options()[1],
        stage_options()[2],
        stage_options()[3],
        OptionRow{
            "cost", std::string("analytic"), "paper | authors | analytic | measured",
            "of sums and gathers: rings by the cluster's latency and bandwidth (paper), or a profile's (measured), "
            "what the simulator takes (analytic), or that, but of sums over all ranks, as in the authors' program "
            "(authors)"},
    };
    return rows;
  }

  Plan plan(const PlanRequest& request) const override { return plan_in_turns(request); }

  std::string linear_program(const PlanRequest& request) const override { return linear_program_in_turns(request); }
};

}  // namespace

const Planner& oases_planner() {
  static const Oases planner;
  return planner;
}

}  // namespace strata
