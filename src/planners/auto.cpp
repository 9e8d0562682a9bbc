/// @file
/// One planner over the spaces of all papers together: pipelines, tensor layouts, sharded states, slices,
/// recomputation, sub-batches and overlap, each beside every other.
///
/// Source:     strata. The spaces are those of OSDP (IJCAI 2023), AMSP (2024), AutoDDL (2023), Oases (2023), ZeRO (SC
///             2020) and Megatron-LM (SC 2021); each mode's file says its own.
/// Idea:       every paper searches one corner and leaves the rest to somebody else; what one of them is worth where
///             the others are there as well is not known until they are searched together, under one cost.
/// Symbols:    as `3d`, `osdp`, `amsp`, `autoddl` and `oases`.
/// Decides:    stages, stages a rank and schedule (gpipe, 1f1b, interleaved), micro-batches on request; a layout, an
///             algorithm and a kind of sum for every product; p, g and os of every operator, whole or in slices; what
///             blocks recompute; sub-batches, within passes or across them; every switch of overlap, and buckets;
///             leaf-first placement.
/// Memory:     its Program's peak.
/// Volume:     its Program's.
/// Reference:  `single` on the same global batch in the same micro-batches, up to the order of summation; with
///             staleness = 1 that of the mode whose rule it takes, which the plan's schedule says.
/// Options:    stages, chunks, tensor, sum, micro_batches, cut_by (as `3d`), without, ablation, seeds, staleness,
///             points, beam.
/// Refuses:    a capacity that no plan which was looked at fits into, with what would free most; micro-batches that do
///             not divide the batch; several ranks where nobody simulates; a space that `without` and given degrees
///             leave empty. What the space has not, since src/lower refuses it: layouts beside slices, quantization or
///             leaf-first nodes; whole tensors dealt in stages; sub-batches with batch norms; sums round a ring over p1
///             and p2 at once. Quantization changes what is computed and is left out.
/// Planner:    joint/joint_search.hpp: candidates by the engines of single papers inside combinations of degrees (those
///             of OSDP in each, of AMSP in data parallelism alone, of AutoDDL, Oases, Merak, decomposed products and
///             SUMMA for layouts), then one decision after another, until none alone makes it better. Not proven to be
///             the optimum: the gap to a bound is told. Behind all that, every mode's own plan is a candidate (seeds),
///             but for SUMMA's where its Programs are very long, so that it is never slower than any of them by the
///             same prediction; what a step takes without them is told. A batch of the planner's is that of the best
///             plan of the modes that choose one, which are asked first then.
/// Reproduces: no figure: nobody has printed this.

#include <vector>

#include "planners/joint/ablation.hpp"
#include "planners/joint/joint_search.hpp"
#include "planners/pipelines/degrees.hpp"

namespace strata {
namespace {

std::vector<OptionRow> rows_of_auto() {
  const auto degrees = degree_options();
  std::vector<OptionRow> rows(degrees.begin(), degrees.end());
  rows.push_back({"without", std::string("none"), "",
                  "dimensions that are left as the experiment asks, with commas between them: stages, tensor, states, "
                  "slices, recompute, sub_batches, overlap, placement; or none"});
  rows.push_back({"seeds", true, "",
                  "every other mode's plan is a candidate behind what the search finds by itself; else none is"});
  rows.push_back({"ablation", false, "",
                  "also what is found without each dimension by itself: what it is worth where the others are there"});
  rows.push_back({"staleness", std::int64_t{0}, "0 | 1",
                  "1: also rules whose gradients are of parameters one step old, which are another function"});
  rows.push_back({"points", std::int64_t{12}, ">= 1", "combinations of degrees that fit of which plans are made"});
  rows.push_back({"beam", std::int64_t{3}, ">= 1",
                  "plans that are improved decision by decision to the end, of twice as many of different degrees; and "
                  "pipelines for which layouts of layers are searched"});
  return rows;
}

class Auto final : public Planner {
 public:
  std::string_view name() const override { return "auto"; }
  std::string_view summary() const override {
    return "all spaces together: stages, layouts, states, slices, recomputation, sub-batches and overlap by one search";
  }
  std::string_view source() const override { return "strata: the union of the spaces of the papers it compares"; }
  std::span<const OptionRow> options() const override {
    static const std::vector<OptionRow> rows = rows_of_auto();
    return rows;
  }
  bool chooses_batch() const override { return true; }
  Plan plan(const PlanRequest& request) const override {
    Plan best = best_joint_plan(request);
    if (request.option<bool>("ablation")) best.why.ablation = found_without_each_dimension(request, best);
    return best;
  }
};

}  // namespace

const Planner& auto_planner() {
  static const Auto planner;
  return planner;
}

}  // namespace strata
