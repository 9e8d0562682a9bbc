/// @file
/// Merak: tensor parallelism in two sub-batches whose sums run under each other's compute, inside each pass.
///
/// Source:     Lai et al., "Merak: An Efficient Distributed DNN Training Framework with Automated 3D Parallelism for
///             Giant Foundation Models" (TPDS 2023, arXiv 2206.04959), sec. 5.2; as Oases compares itself with it
///             (arXiv 2305.16121, sec. 5.1 and table 3).
/// Idea:       two halves of a batch need nothing of each other, so one computes while the other's sums are on their
///             way; a layer's backward begins when all of its recomputation is over.
/// Symbols:    t tensor ranks of all layers, d = R / t of R ranks; B samples, n their elements behind a layer.
/// Decides:    (p0, p1, p2) = (d, t, 1) or (d, 1, t) a product, one t for all layers; sums that all ranks have;
///             schedule.sub_batches = 2.
/// Memory:     as `megatron` with sum = all_reduce, of both sub-batches.
/// Volume:     a rank and layer, forward, backward and where layers are computed again: two all-reduces of B n / d
///             each, in halves; weight gradients over d once a step.
/// Reference:  `single`; bit for bit `oases` with planner = false, cross_pass = false and fine_recompute = false.
/// Options:    tensor, cost, zero, stages, schedule, chunks, cut_by.
/// Refuses:    what `oases` refuses of degrees and samples.
/// Planner:    one degree for all layers: of those that fit the fastest, by the simulator.
/// Differs:    Merak's own program recomputes nothing where sub-batches overlap. Oases' authors ran it with
/// recomputation:
///             train.recompute = "whole_block".
/// Reproduces: a column of Oases' figures 4 and 5 and of its table 3.

#include <array>
#include <string>

#include "planners/layouts/layout_planning.hpp"
#include "planners/layouts/link_costs.hpp"
#include "planners/oases/turns_planning.hpp"
#include "planners/oases/ways_to_cut.hpp"

namespace strata {
namespace {

class Merak final : public Planner {
 public:
  std::string_view name() const override { return "merak"; }
  std::string_view summary() const override {
    return "tensor parallel in two sub-batches whose sums run under each other's compute, inside each pass";
  }
  std::string_view source() const override {
    return "Lai et al., Merak: An Efficient Distributed DNN Training Framework with Automated 3D Parallelism, 2023";
  }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        degree_option(),    zero_option(),      stage_options()[0], stage_options()[1],
        stage_options()[2], stage_options()[3], link_cost_option(),
    };
    return rows;
  }

  Plan plan(const PlanRequest& request) const override {
    return plan_in_turns(with_options(request, {{"degrees", std::string()},
                                                {"planner", false},
                                                {"search", std::string("exact")},
                                                {"reshard", std::string("pipelined")},
                                                {"selective", false},
                                                {"sub_batches", std::int64_t{2}},
                                                {"cross_pass", false},
                                                {"fine_recompute", false}}));
  }
};

}  // namespace

const Planner& merak_planner() {
  static const Merak planner;
  return planner;
}

}  // namespace strata
