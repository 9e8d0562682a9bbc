/// @file
/// A pipeline whose ranks hold several stages each, so that it fills and drains in shorter steps.
///
/// Source:     Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC
///             2021, sec. 2.2.2.
/// Idea:       of vS stages rank s holds s, S + s, 2S + s, ...: a micro-batch goes v times around the ranks, a pass of
///             a stage takes a v-th of a rank's whole, and so does what stands empty while the first micro-batches fill
///             the pipeline and the last ones drain it.
/// Symbols:    N ranks, S ranks a pipeline, v stages a rank, M micro-batches, f and b seconds of one micro-batch's
///             forward and backward of all stages of a rank, P_s parameters (elements) that the stages of rank s use, C
///             parameters that the first and last stage both use (a tied table), g bytes of a gradient element, A_j
///             bytes that stage j keeps of one micro-batch between its forward and its backward, T_j bytes of one
///             micro-batch's tensors that cross from stage j - 1 to stage j (T_0 = T_vS = 0).
/// Decides:    mesh axes {stage = S, data = N/S}, stage slowest; vS stages cut between blocks, embedding on the first,
///             head and loss on the last; schedule interleaved.
/// Memory:     states: `single`'s with P_s for P; activations: of rank s at most min(vM, 2(S-s-1) + (v-1)S + 1) passes
///             of a stage are between their forward and their backward, and what one backward pass needs.
/// Time:       (M + (S-1)/v)(f + b) of equal stages and free messages: the bubble is a v-th of 1f1b's.
/// Volume:     a rank of stages J and step: M Σ_J (T_j + T_{j+1}) by send, over all ranks (vS-1)/(S-1) times 1f1b's
///             where all T are equal; 2 (D-1)/D P_s g by all-reduce with D = N/S, C g where two ranks hold C, 2 (S-1)/S
///             · 4 for the norm where it clips.
/// Reference:  `single` on the same global batch in the same micro-batches, up to the order of summation.
/// Options:    stages (vS), chunks (v), cut_by, cut_at; micro-batches and recomputation are in [train], where
///             micro-batches may be left open.
/// Refuses:    micro-batches that are no multiple of S; stages that are none of v; more stages than blocks; ranks that
///             S does not divide; micro-batches that do not divide the batch.
/// Differs:    from Megatron-LM: uneven numbers of layers, and sends that no kernel waits for; where M = S it runs
///             backwards as early as elsewhere instead of behind all forwards.
/// Reproduces: a stronger pipeline baseline of OSDP, Oases and AutoDDL than they print.

#include <array>

#include "planners/pipelines/pipeline.hpp"

namespace strata {
namespace {

/// The most ranks a pipeline that divide all of them and have @p chunks stages each.
std::int64_t most_ranks(const PlanRequest& request, std::int64_t chunks) {
  const int ranks = request.base.mesh.num_ranks();
  std::int64_t most = std::min<std::int64_t>(ranks, most_stages_of_model(request) / chunks);
  while (most > 1 && ranks % most != 0) --most;
  return std::max<std::int64_t>(most, 1);
}

class Interleaved final : public Planner {
 public:
  std::string_view name() const override { return "interleaved"; }
  std::string_view summary() const override {
    return "pipeline of several stages a rank, one forward one backward: a shorter bubble for more messages";
  }
  std::string_view source() const override { return "Narayanan et al., Megatron-LM, SC 2021"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        OptionRow{"stages", std::int64_t{0}, ">= 0",
                  "stages of the pipeline, a multiple of chunks; 0: on as many ranks as divide all and have chunks of "
                  "the model's stages each"},
        OptionRow{"chunks", std::int64_t{2}, ">= 1", "stages a rank"},
        OptionRow{"cut_by", std::string("flops"), "flops | operators | parameters",
                  "what the largest stage has the least of"},
        OptionRow{"cut_at", std::string("block"), "block | operator", "where a stage may begin"},
    };
    return rows;
  }
  Plan plan(const PlanRequest& request) const override {
    const auto chunks = request.option<std::int64_t>("chunks"), asked = request.option<std::int64_t>("stages");
    if (asked > 1 && (asked % chunks != 0 || asked == chunks)) {
      throw Unsupported(
          fmt::format("{}: {} stages in chunks of {} on {} ranks; accepted: {} or a greater multiple of {}",
                      request.base.strategy, asked, chunks, request.base.mesh.num_ranks(), 2 * chunks, chunks));
    }
    const std::int64_t in_pipeline =
        asked == 0 ? most_ranks(request, chunks) : std::max<std::int64_t>(asked / chunks, 1);
    const std::int64_t stages = in_pipeline == 1 ? 1 : chunks * in_pipeline;
    Plan plan = pipeline_plan(request, ScheduleKind::interleaved, stages, in_pipeline);
    if (plan.schedule.micro_batches % in_pipeline != 0) {
      throw Unsupported(
          fmt::format("{}: train.micro_batches = {} is no multiple of the {} ranks of a pipeline (of {} ranks), which "
                      "take as many at once; accepted: {} or a multiple of it",
                      plan.strategy, plan.schedule.micro_batches, in_pipeline, plan.mesh.num_ranks(), in_pipeline));
    }
    return plan;
  }
};

}  // namespace

const Planner& interleaved_planner() {
  static const Interleaved planner;
  return planner;
}

}  // namespace strata
