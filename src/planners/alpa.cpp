/// @file
/// Alpa's plans inside a layer, as Oases compares itself with them: a tensor degree for each attention and MLP, chosen
/// as if nothing ran under a collective, and nothing does.
///
/// Source:     Zheng et al., "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning"
///             (OSDI 2022, arXiv 2201.12023), sec. 4; as Oases compares itself with it (arXiv 2305.16121, sec. 5.1).
/// Idea:       the cost of a plan is the sum of what its parts compute and communicate, so a chain of degrees is solved
///             exactly.
/// Symbols:    t tensor ranks of a node, an attention or an MLP; d = R / t of R ranks; P and C what it computes and
///             communicates; B samples, n their elements behind a layer.
/// Decides:    (p0, p1, p2) = (d, t, 1) or (d, 1, t) a product, in each node with its own t; sums that all ranks have.
/// Memory:     as `oases`, without sub-batches.
/// Volume:     as `megatron` with sum = all_reduce; where t rises along the model samples are gathered forward, where
/// it
///             falls backward.
/// Reference:  `single`; where one degree is possible, `megatron` with sum = all_reduce, bit for bit.
/// Options:    tensor, degrees, search, cost, zero, stages, stage_construction, schedule, chunks, cut_by.
/// Refuses:    what `oases` refuses of degrees; stage_construction = auto of interleaved stages, and, as stages = 0,
///             where nobody simulates.
/// Planner:    the chain of Oases (planners/oases/chain.hpp) with one sub-batch: the sum of P, C and gathers, exactly,
///             within a limit of memory; the answer stands beside the best uniform degree, and of the two the simulator
///             has the last word. On request stages are cut as in Alpa's sec. 5 (oases/stage_construction.hpp): a
///             dynamic program over all cuts between blocks for the sum of all stages and M - 1 times the slowest
///             one, for each degree and, of stages = 0, each number of stages; cuts of equally many blocks and by
///             cut_by stand beside its answer, the simulator chooses, and why.binding says which it took.
/// Differs:    Alpa cuts any operator in any dimension; here nodes have tensor degrees, as in the paper that it is
///             compared in. Its stages may be on meshes of different sizes, here each has equally many ranks, in
///             several stages with one degree for all layers, and messages between them are counted. By default Alpa
///             knows no limit of memory, here the device's holds.
/// Reproduces: a column of Oases' figures 4 and 5.

#include <array>
#include <string>

#include "planners/layouts/layout_planning.hpp"
#include "planners/oases/stage_construction.hpp"
#include "planners/oases/turns_planning.hpp"
#include "planners/oases/ways_to_cut.hpp"

namespace strata {
namespace {

class Alpa final : public Planner {
 public:
  std::string_view name() const override { return "alpa"; }
  std::string_view summary() const override {
    return "tensor parallel: a degree each for every attention and MLP, planned exactly as if nothing overlapped";
  }
  std::string_view source() const override {
    return "Zheng et al., Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning, 2022";
  }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        degree_option(),
        degrees_option(),
        OptionRow{"search", std::string("exact"), "exact | exhaustive", "of the chain"},
        zero_option(),
        OptionRow{"stages", std::int64_t{1}, ">= 0",
                  "stages of a pipeline, each of equally many ranks; 0: those that take least time"},
        stage_construction_option(),
        stage_options()[1],
        stage_options()[2],
        stage_options()[3],
        OptionRow{"cost", std::string("analytic"), "paper | analytic | measured",
                  "of sums and gathers: rings by the cluster's latency and bandwidth (paper), or a profile's "
                  "(measured), or what the simulator takes (analytic)"},
    };
    return rows;
  }

  Plan plan(const PlanRequest& request) const override { return plan_in_turns(without_turns(request)); }

  std::string linear_program(const PlanRequest& request) const override {
    return linear_program_in_turns(without_turns(request));
  }

 private:
  static PlanRequest without_turns(const PlanRequest& request) {
    return with_options(request, {{"planner", true},
                                  {"reshard", std::string("blocking")},
                                  {"selective", false},
                                  {"sub_batches", std::int64_t{1}},
                                  {"cross_pass", false},
                                  {"fine_recompute", false}});
  }
};

}  // namespace

const Planner& alpa_planner() {
  static const Alpa planner;
  return planner;
}

}  // namespace strata
