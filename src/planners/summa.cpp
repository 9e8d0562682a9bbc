/// @file
/// SUMMA: every product on a grid of rows x columns of ranks, panel by panel, with no matrix held twice.
///
/// Source:     van de Geijn and Watts, "SUMMA: Scalable Universal Matrix Multiplication Algorithm", Concurrency 9(4),
///             1997; for transformers Xu et al., "An Efficient 2D Method for Training Super-Large Deep Learning
///             Models" (Optimus), 2021 (arXiv 2104.05343).
/// Idea:       inputs, weights and outputs are all cut in two dims, so that no rank keeps what another one has; a
///             product takes its operands' parts panel by panel, broadcast along rows and columns.
/// Symbols:    R ranks a node, N nodes; r x c x d = R x N rows, columns and replicas, each ranks in a node x nodes;
///             m x k times k x n a product, m over all ranks; s = lcm(r, c) panels (r c of a tied weight).
/// Decides:    r and c, the same for all linears: (p0, p1, p2) = (r, d, c) with algorithm = summa; embeddings hold
///             words over r and features over c (tied: the other way round); convolutions (R N, 1, 1); norms, additions
///             and attention stay where they are, samples over r d and features over c. Mesh axis: stage, as
///             `megatron`.
/// Memory:     weights, gradients and optimizer states 1/(r c) (zero1: optimizer states 1/(r c d)); all activations
///             1/(r c d); two panels of each operand, mk/(r d s) and kn/(c s) elements, and backward two of each
///             gradient; packed copies where r or c does not divide the other (layouts/lasting_bytes.hpp).
/// Volume:     elements a rank sends on average: forward (c-1)/c mk/(r d) of inputs and (r-1)/r kn/c of weights;
///             backward both twice, once broadcast and once summed; 2 (d-1)/d kn/(r c) of weight gradients once a step;
///             a few statistics a row of norms and losses (layouts/volume.hpp).
/// Reference:  `single`.
/// Options:    rows (a factor, or planner), replicas (a factor), panels, zero, stages, schedule, chunks, cut_by, cost.
/// Refuses:    grids of more rows or columns than there are samples, features, heads or words; a capacity below what
/// every grid needs;
///             a cluster without the numbers that `cost` reads; micro-batches that do not divide the batch; stages as
///             `megatron`.
/// Differs:    the broadcasts of a panel run under the product of the panel before; panels = blocking has one after the
///             other, as Optimus does;
///             grids need not be square; norms gather a row's statistics; an embedding's rows are scattered as sums
///             instead of its table being broadcast; biases are held by all rows and their gradients summed.
/// Reproduces: the baseline of AutoDDL's figures 9 and 10.

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.hpp"
#include "partition/shards.hpp"
#include "planners/layouts/grid_search.hpp"
#include "planners/layouts/summa_layouts.hpp"
#include "planners/states/factors.hpp"

namespace strata {
namespace {

class Summa final : public Planner {
 public:
  std::string_view name() const override { return "summa"; }
  std::string_view summary() const override {
    return "products panel by panel on a grid of rows and columns, no matrix held twice: the grid that communicates "
           "least";
  }
  std::string_view source() const override { return "van de Geijn and Watts, SUMMA, 1997; Xu et al., Optimus, 2021"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        OptionRow{"rows", std::string(planner_word), "",
                  "rows of the grid, in a node x nodes; columns are the other ranks of a replica; or planner"},
        OptionRow{"replicas", std::string("1x1"), "", "grids beside each other, data parallel, in a node x nodes"},
        OptionRow{"panels", std::string("ahead"), "ahead | blocking",
                  "broadcasts and sums of panels run under products, or nothing is computed meanwhile (Optimus)"},
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
    PlanRequest asked = request;
    if (request.option<std::string>("panels") == "blocking") asked.base.overlap.panels = "none";
    const LayoutPlanning planning(asked, {}, MatmulAlgorithm::summa);
    const Factor grid = planning.grid();
    const auto refuse = [&](std::string_view option, const Factor& factor) {
      return fmt::format("{} = {} does not divide {} ranks a node × {} nodes", option, to_string(factor), grid.in_node,
                         grid.nodes);
    };
    const Factor replicas = *factor_option("replicas", request.option<std::string>("replicas"), "");
    if (replicas.total() == 1 && request.option<std::string>("zero") == "zero1") {
      throw Unsupported(fmt::format("{} on {} ranks: zero = zero1 with replicas = 1x1: no matrix is held twice",
                                    request.base.strategy, grid.total()));
    }
    if (!divides(replicas, grid)) return cheapest_way(planning, {}, refuse("replicas", replicas));
    const Factor ranks = quotient(grid, replicas);
    const auto fixed = factor_option("rows", request.option<std::string>("rows"), planner_word);
    std::vector<WayToCut> ways;
    std::string broken;
    for (const Factor& rows : fixed ? std::vector{*fixed} : divisors(ranks)) {
      if (!divides(rows, ranks)) {
        broken = refuse("rows · replicas", product(rows, replicas));
        continue;
      }
      std::string name = fmt::format("rows {} x columns {}", to_string(rows), to_string(quotient(ranks, rows)));
      if (replicas.total() > 1) name += " x replicas " + to_string(replicas);
      ways.push_back({std::move(name), summa_layouts(planning.chain(), grid, rows, replicas)});
    }
    return cheapest_way(planning, ways, std::move(broken));
  }
};

}  // namespace

const Planner& summa_planner() {
  static const Summa planner;
  return planner;
}

}  // namespace strata
