/// @file
/// AutoDDL: each layer's product is cut in three ways at once, differently from layer to layer, so that least is moved.
///
/// Source:     Chen et al., "AutoDDL: Automatic Distributed Deep Learning with Asymptotically Optimal Communication",
///             2023 (arXiv 2301.06813).
/// Idea:       with rows, columns and the summed dim of a product all cut, p ranks exchange Θ(n²/p^(2/3)) elements
///             where Megatron's two cuts need n²/p^(1/2); which cuts are best depends on sizes, neighbours and links.
/// Symbols:    R ranks a node, N nodes, p = R N; p0, p1, p2 degrees of a layer, ranks in a node x nodes, p0 p1 p2 =
///             R x N; m x k times k x n its product, m over all ranks.
/// Decides:    p0, p1, p2 of every linear and embedding; convolutions (R N, 1, 1); norms follow the layer before.
///             Mesh axis: stage, as `megatron`.
/// Memory:     states of a layer 1/(p1 p2) (zero1: optimizer states 1/p; biases 1/p1); its input kept as gathered, p1/p
///             of it, its output p2/p before it is reduced, all else 1/p (layouts/lasting_bytes.hpp).
/// Volume:     elements a rank moves forward: (p1-1)/p1 mk/(p0 p2) gathered, (p2-1)/p2 mn/(p0 p1) scattered,
///             (q-1)/q mk/p by all-to-all to a layer of another p0, backward the same, 2 (p0-1)/p0 kn/(p1 p2) of weight
///             gradients once a step; a few statistics a row of norms and losses (layouts/volume.hpp).
/// Reference:  `single`.
/// Options:    search, repeated_layers, layout, max_p0, zero, stages, schedule, chunks, cut_by, cost, seed,
///             proposals, restarts, temperature, trace.
/// Refuses:    layers with fewer samples, features, heads or words than every layout has parts; a capacity below what
/// every
///             strategy needs; a cluster without the numbers that `cost` reads; micro-batches that do not divide the
///             batch; an exhaustive search of more than 10^10 strategies; stages as `megatron`.
/// Differs:    the default search is exact (dynamic programming over layers); residual additions count, which have to
///             bring two homes together; of strategies whose bytes, added up over layers, fit, the cheapest is found
///             and proven (search/branch_and_bound), and where a Program needs more than these the plan says how far
///             from the optimum it can be; by cost = "analytic" a collective takes what the
///             simulator takes for it: reduced within nodes before it leaves them where that is faster, its groups
///             sharing a node's NICs; heuristics look at whole strategies, as the paper's do; of several stages a
///             search sees all layers on the ranks of one, the Program's memory of the fullest decides what fits, and a
///             table that the first and the last one share is priced once.
/// Reproduces: AutoDDL's figures 3, 7 and 8.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.hpp"
#include "planners/layouts/coordinate_descent.hpp"
#include "planners/layouts/exact_layouts.hpp"
#include "planners/layouts/exhaustive_search.hpp"
#include "planners/layouts/layout_planning.hpp"
#include "planners/layouts/metropolis_hastings.hpp"
#include "planners/layouts/random_search.hpp"
#include "planners/layouts/search_space.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

constexpr std::int64_t most_strategies = 10'000'000'000;
SearchAnswer search(const LayoutProblem& problem, const PlanRequest& request) {
  const std::string word = request.option<std::string>("search");
  const auto seed = static_cast<std::uint64_t>(request.option<std::int64_t>("seed"));
  const std::int64_t proposals = request.option<std::int64_t>("proposals");
  if (word == "exhaustive") return search_exhaustively(problem, most_strategies);
  if (word == "random") return search_at_random(problem, proposals, seed);
  if (word == "metropolis_hastings") {
    return search_metropolis_hastings(problem, request.option<double>("temperature"), proposals, seed);
  }
  if (word == "coordinate_descent") {
    return search_coordinate_descent(problem, request.option<std::int64_t>("restarts"), seed);
  }
  return search_exactly(problem);
}

/// "p0,p1,p2".
Layout parse_layout(const std::string& text) {
  const std::size_t first = text.find(','), second = first == std::string::npos ? first : text.find(',', first + 1);
  try {
    if (second == std::string::npos) throw UserError("");
    return {.p0 = parse_factor(text.substr(0, first)),
            .p1 = parse_factor(text.substr(first + 1, second - first - 1)),
            .p2 = parse_factor(text.substr(second + 1))};
  } catch (const UserError&) {
    throw UserError(
        fmt::format("strategy.layout = \"{}\": accepted: {}, or p0, p1 and p2 of every layer, each ranks in a "
                    "node x nodes, as in \"2x1,1x2,2x1\"",
                    text, planner_word));
  }
}

class AutoDdl final : public Planner {
 public:
  std::string_view name() const override { return "autoddl"; }
  std::string_view summary() const override {
    return "each layer's rows, columns and sums cut its own way, for the least communication that fits";
  }
  std::string_view source() const override { return "Chen et al., AutoDDL, 2023"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        OptionRow{"search", std::string("exact"),
                  "exact | exhaustive | random | metropolis_hastings | coordinate_descent",
                  "exact, or one of the paper's"},
        OptionRow{"repeated_layers", std::string("tied"), "tied | free",
                  "layers at one place of equal blocks share a layout, or each has its own"},
        OptionRow{"layout", std::string(planner_word), "",
                  "p0,p1,p2 of every layer, each ranks in a node x nodes (\"2x1,1x2,2x1\"); or planner"},
        OptionRow{"max_p0", std::int64_t{0}, ">= 0", "most copies of a weight; 0: as many as memory allows"},
        zero_option(),
        stage_options()[0],
        stage_options()[1],
        stage_options()[2],
        stage_options()[3],
        link_cost_option(),
        OptionRow{"seed", std::int64_t{1}, ">= 0", "of random, metropolis_hastings and coordinate_descent"},
        OptionRow{"proposals", std::int64_t{10'000}, ">= 1", "strategies that random and metropolis_hastings look at"},
        OptionRow{"restarts", std::int64_t{10}, ">= 1", "beginnings of coordinate_descent"},
        OptionRow{"temperature", 0.01, "> 0", "of metropolis_hastings, as a share of the first strategy's cost"},
        OptionRow{"trace", false, "", "the plan says what the best was after how many strategies"},
    };
    return rows;
  }

  Plan plan(const PlanRequest& request) const override {
    const LayoutPlanning planning(request, {.max_p0 = static_cast<int>(request.option<std::int64_t>("max_p0"))});
    if (const std::string fixed = request.option<std::string>("layout"); fixed != planner_word) {
      return with_layout(planning, parse_layout(fixed));
    }
    LayoutSpace space = space_of(planning);
    // The search sees all layers on the ranks of one stage.
    space.problem.capacity_bytes = planning.num_places() * planning.capacity_bytes();
    std::optional<double> lower_bound;                     // of the first: what fits is never more than what adds up
    std::int64_t too_much = space.problem.capacity_bytes;  // what a search was given whose strategy does not fit
    // The search sees what adds up over layers. Where a strategy needs more than that, it is given that much less.
    for (;;) {
      SearchAnswer answer = search(space.problem, request);
      if (answer.choices.empty()) answer = least_or_refuse(planning, space, lower_bound.value_or(0.0));
      answer.binds_capacity = answer.binds_capacity || lower_bound.has_value();
      answer.lower_bound = lower_bound.value_or(answer.lower_bound);
      lower_bound = answer.lower_bound;
      const std::vector<Layout> layouts = space.layouts(answer.choices);
      const std::int64_t excess = space.problem.capacity_bytes == 0 ? 0 : planning.excess_bytes(layouts);
      if (excess <= 0) {
        if (request.option<std::string>("search") == "exact") give_more(planning, space, too_much, answer);
        return explained(planning, space.layouts(answer.choices), answer);
      }
      const std::int64_t lasting = space.problem.bytes(answer.choices);
      too_much = space.problem.capacity_bytes;
      // At least a byte: nothing holds less than that.
      space.problem.capacity_bytes =
          std::max<std::int64_t>(1, std::min(space.problem.capacity_bytes - excess, lasting - 1));
    }
  }

 private:
  static LayoutSpace space_of(const LayoutPlanning& planning) {
    const PlanRequest& request = planning.request();
    try {
      return layout_space(planning.chain(), planning.costs(), &planning.lasting_bytes(), planning.limits(),
                          request.option<std::string>("repeated_layers") == "tied");
    } catch (const CostsUnknown&) {
      throw;
    } catch (const Unsupported& refusal) {
      throw Unsupported(
          fmt::format("{} on {} ranks: {}", request.base.strategy, planning.grid().total(), refusal.what()));
    }
  }

  /// What strategies need beyond what adds up differs: @p answer, which fits, may leave room. The search is given more,
  /// halfway to what was @p too_much, as long as it can make a difference, and the cheapest that fits is kept.
  static void give_more(const LayoutPlanning& planning, LayoutSpace& space, std::int64_t too_much,
                        SearchAnswer& answer) {
    std::int64_t enough = space.problem.capacity_bytes;
    const double lower_bound = answer.lower_bound;
    while (too_much - enough > planning.capacity_bytes() / 32) {
      space.problem.capacity_bytes = enough + (too_much - enough) / 2;
      SearchAnswer other = search_exactly(space.problem);
      const bool is_cheaper = !other.choices.empty() && other.cost < answer.cost;
      const bool fits = !is_cheaper || planning.excess_bytes(space.layouts(other.choices)) <= 0;
      (fits ? enough : too_much) = space.problem.capacity_bytes;
      if (!fits || !is_cheaper) continue;
      answer = std::move(other);
      answer.lower_bound = lower_bound;
      answer.binds_capacity = true;
    }
  }

  /// The same for every layer that is searched.
  static Plan with_layout(const LayoutPlanning& planning, const Layout& layout) {
    std::vector<Layout> layouts;
    for (const Layer& layer : planning.chain().layers) {
      layouts.push_back(layer.is_searched ? layout : replicated_layout(planning.grid()));
      const Plan& base = planning.request().base;
      if (const std::string broken = broken_limit(layer, layouts.back(), planning.limits()); !broken.empty()) {
        throw Unsupported(
            fmt::format("{} on {} ranks: {}: {}", base.strategy, base.mesh.num_ranks(), layer.name, broken));
      }
    }
    return planning.plan(layouts, "the layout that strategy.layout names");
  }

  /// Where nothing fits what a search was given: it was given less than the capacity, by what the last strategy needed
  /// beyond what adds up. The strategy of fewest bytes may need less beyond.
  static SearchAnswer least_or_refuse(const LayoutPlanning& planning, const LayoutSpace& space, double lower_bound) {
    const PlanRequest& request = planning.request();
    SearchAnswer answer;
    answer.choices = smallest(space.problem);
    if (answer.choices.empty()) {
      throw Unsupported(fmt::format("{} on {} ranks: no strategy cuts a tied weight alike where it is used",
                                    request.base.strategy, planning.grid().total()));
    }
    const std::vector<Layout> layouts = space.layouts(answer.choices);
    if (planning.excess_bytes(layouts) > 0) planning.refuse_capacity(layouts);
    if (const std::string word = request.option<std::string>("search"); word != "exact") {
      throw Unsupported(fmt::format(
          "{} on {} ranks: search = \"{}\" found nothing that fits into {}; set strategy.search = \"exact\"",
          request.base.strategy, planning.grid().total(), word, gib(planning.capacity_bytes())));
    }
    answer.cost = space.problem.cost(answer.choices);
    answer.lower_bound = lower_bound;
    return answer;
  }

  static Plan explained(const LayoutPlanning& planning, const std::vector<Layout>& layouts,
                        const SearchAnswer& answer) {
    const PlanRequest& request = planning.request();
    std::string why = fmt::format("search = {}", request.option<std::string>("search"));
    if (answer.evaluations > 0) why += fmt::format(", {} strategies looked at", answer.evaluations);
    if (answer.acceptance_rate > 0.0) {
      why +=
          fmt::format(", temperature {}, seed {}, {:.3g} of proposals accepted", request.option<double>("temperature"),
                      request.option<std::int64_t>("seed"), answer.acceptance_rate);
    }
    if (answer.lower_bound > 0.0) {
      const double gap = std::max(0.0, 1.0 - answer.lower_bound / answer.cost);
      if (answer.binds_capacity) why += fmt::format("; binds memory: {}", gib(planning.capacity_bytes()));
      if (gap >= 1e-12) {
        why += fmt::format("; gap {:.2g}", gap);
      } else {
        why += answer.binds_capacity ? "; none that fits is cheaper" : "; no strategy is cheaper";
      }
    }
    Plan plan = planning.plan(layouts, why);
    if (request.option<bool>("trace")) {
      for (const TracePoint& point : answer.trace) {
        plan.why.trace.push_back(fmt::format("{} {:.9g}", point.evaluations, point.cost / planning.num_places()));
      }
    }
    return plan;
  }
};

}  // namespace

const Planner& autoddl_planner() {
  static const AutoDdl planner;
  return planner;
}

}  // namespace strata
