/// @file
/// Megatron-LM: tensor parallelism by columns, then by rows, beside data parallelism.
///
/// Source:     Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism",
///             2019 (arXiv 1909.08053), sec. 3.
/// Idea:       of two weights in a row the first is cut by columns and the second by rows: between them every rank goes
///             on with what it has, and one sum a pair is all that is exchanged.
/// Symbols:    R ranks a node, N nodes; dp x tp = R x N, each ranks in a node x nodes; m x k times k x n a product.
/// Decides:    the layout of every layer: (p0, p1, p2) = (dp, tp, 1) or (dp, 1, tp); embedding and logits along the
///             vocabulary; convolutions (R N, 1, 1). Mesh axis: stage, if there are several places in a pipeline; R, N
///             and all below are then a place's, which besides sends an activation of mn/(dp tp) elements a rank and
///             micro-batch each way.
/// Memory:     weights, gradients and optimizer states of these layers 1/tp (zero1: optimizer states 1/(dp tp)); what
///             is added to partial sums, as positions, is whole; outputs of norms, additions and dropout 1/(dp tp);
///             inputs of columns and outputs of rows are tp times that while they are gathered, partial sums are as
///             large (layouts/lasting_bytes.hpp); of stages activations of every micro-batch in flight. With sum =
///             all_reduce norms' weights are whole, and all of these activations 1/dp.
/// Volume:     elements a rank and pair of layers moves forward: (tp-1)/tp mk/dp gathered, (tp-1)/tp mn/dp scattered
///             (together an all-reduce), backward the same; 2 (dp-1)/dp kn/tp of weight gradients once a step; a few
///             statistics a row of norms and losses (layouts/volume.hpp). With sum = all_reduce one all-reduce of mn/dp
///             forward and one of mk/dp backward, and no statistics of norms.
/// Reference:  `single`.
/// Options:    tensor (a factor, or planner), tensor_in_node, sum, zero, stages, schedule, chunks, cut_by, cost.
/// Refuses:    degrees above the samples, features, heads or words that they cut; a capacity below what every degree
///             needs; a cluster without the numbers that `cost` reads; micro-batches that do not divide the batch;
///             stages that are neither whole nodes nor an even part of one, have one rank, or outnumber the blocks;
///             interleaved ones (schedule) that are no multiple of chunks, or with micro-batches that are none of the
///             ranks' places in the pipeline.
/// Differs:    with sum = scatter, the default, the sum between pairs is a reduce-scatter and an all-gather, and norms,
///             dropout and additions between the two work on a part of the features (Megatron repeats them on every
///             rank, as sum = all_reduce does, or cuts the sequence); a vocabulary is not padded; a table that the
///             first and the last stage share is priced once.
/// Reproduces: the baseline of AutoDDL's figures 3, 9 and 10.

#include <array>

#include "planners/layouts/uniform_degrees.hpp"

namespace strata {
namespace {

class Megatron final : public Planner {
 public:
  std::string_view name() const override { return "megatron"; }
  std::string_view summary() const override {
    return "tensor parallel by columns, then rows, beside data parallel: the degrees that communicate least";
  }
  std::string_view source() const override { return "Shoeybi et al., Megatron-LM, 2019"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        tensor_option(),    tensor_in_node_option(), sum_option(),       zero_option(),      stage_options()[0],
        stage_options()[1], stage_options()[2],      stage_options()[3], link_cost_option(),
    };
    return rows;
  }

  Plan plan(const PlanRequest& request) const override {
    const bool sums_whole = request.option<std::string>("sum") == to_string(PartialSums::all_reduce);
    const LayoutPlanning planning(request, {}, MatmulAlgorithm::local,
                                  sums_whole ? PartialSums::all_reduce : PartialSums::scatter);
    return cheapest_uniform_degrees(request, planning);
  }
};

}  // namespace

const Planner& megatron_planner() {
  static const Megatron planner;
  return planner;
}

}  // namespace strata
