/// @file
/// AMSP: parameters, gradients and optimizer states are sharded independently, over as few and near ranks as memory
/// allows.
///
/// Source:     Chen et al., "AMSP: Reducing Communication Overhead of ZeRO for Efficient LLM Training", 2024 (arXiv
///             2311.00257).
/// Idea:       states differ in size and in how often they travel, so each takes its own factor; the least
///             communication that fits is found by trying all.
/// Symbols:    R ranks a node, N nodes; s = s0 x s1 a factor, ranks in a node x nodes, of parameters (p), gradients
///             (g) and optimizer states (os), dp = R x N; M micro-batches, Φ parameters (elements), c and g bytes of a
///             parameter and a gradient element.
/// Decides:    mesh axes {data = R N}; p, g, os; how optimizer states are dealt and spread, and how gradients reach
///             them; a recomputed block keeps what it gathered for its backward.
/// Memory:     states a rank: cΦ/s_p + gΦ/s_g + 12Φ/s_os bytes with bf16 Adam (8Φ/s_os with f32), rounded up a tensor;
///             inter-tensor: the fullest rank's. Beside them: where s_p > 1 what `zero3` has while a layer is computed;
///             where s_g > s_p what `zero2` has of a bucket, of p shards; with gradients = reduce_scatter what `zero1`
///             has; and activations of one micro-batch with the gradients of one operator's. All of it is its Program's
///             peak, which says whether a plan fits.
/// Volume:     a rank and step: M (s_p-1)/s_p (2 cΦ + gΦ); (M-1) 2 (q-1)/q gΦ/s_p with q = s_g/s_p; 2 (q-1)/q gΦ/s_p
///             with q = dp/s_p; to spread, (q-1)/q cΦ/s_p with q = s_os/s_p by all-gather, all ranks together as much
///             by broadcast. gradients = reduce_scatter halves the second and, where
///             s_os = dp, the third.
/// Reference:  `ddp`.
/// Options:    p, g, os (each a factor, or planner), sharding, gradients, cost, placement, overlap, broadcast.
/// Refuses:    factors that break 1 <= s_p | s_g | s_os | dp in both dimensions, s1 > 1 => s0 = R, s_g one of s_p,
///             s_os; a capacity below what every candidate needs; a cluster without the numbers that `cost` reads; a
///             batch that the micro-batches do not divide.
/// Differs:    the bandwidth of a collective is a formula where nothing was measured; what else of the cost differs is
///             in states/communication.hpp; memory is the Program's own peak, of a Program of few blocks first, and of
///             the whole where that leaves room; the search does not see under which leaf switches the job's nodes are,
///             they are placed after it; no pre-filter is needed, all 121 candidates of 1024 ranks are costed.
/// Reproduces: AMSP's table IV; its figures 11-13, 16 and 17, and table V.

#include <fmt/format.h>

#include <array>
#include <memory>

#include "base/error.hpp"
#include "planners/states/factor_search.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

/// Factors that the request fixes.
struct Fixed {
  std::optional<Factor> p, g, os;
  bool all() const { return p && g && os; }
  bool allows(const StateFactors& state) const {
    const auto agrees = [](const std::optional<Factor>& fixed, const Factor& factor) {
      return !fixed || *fixed == factor;
    };
    return agrees(p, state.p) && agrees(g, state.g) && agrees(os, state.os);
  }
};

Fixed fixed_factors(const PlanRequest& request) {
  const auto read = [&](const char* name) {
    return factor_option(name, request.option<std::string>(name), planner_word);
  };
  return {read("p"), read("g"), read("os")};
}

std::string described(const ShardingChoice& choice) {
  return fmt::format("{}: {:.6g} s, {}", to_string(choice.state), choice.seconds.total(), gib(choice.peak_bytes));
}

[[noreturn]] void refuse_capacity(const Plan& plan, const StateFactors& smallest, const Evaluation& needed) {
  const auto of = [&](Category category) { return gib(needed.peak.bytes[static_cast<int>(category)]); };
  throw OutOfMemory(
      fmt::format("{}: {} needs least, {}, {} bytes too much; of it parameters {}, gradients {}, optimizer states {}, "
                  "activations {}, on their way between ranks {}",
                  nothing_fits(plan), to_string(smallest), gib(needed.peak_bytes),
                  needed.peak_bytes - plan.device_capacity_bytes, of(Category::parameter), of(Category::gradient),
                  of(Category::optimizer), of(Category::activation), of(Category::communication)));
}

/// Asks @p evaluate, which may be null where nothing limits memory: then nobody has to know.
ProgramAccount account_of(const Evaluate* evaluate, const Plan& plan) {
  if (evaluate == nullptr) {
    STRATA_INVARIANT(plan.device_capacity_bytes == 0, "amsp asks Programs what fits, and there is nobody to ask");
    const auto unknown = [](const StateFactors&) { return ProgramPeak{}; };
    return {unknown, unknown};
  }
  const auto peak = [&plan](const StateFactors& state, const auto& ask) {
    Plan candidate = plan;
    set_state(candidate, state);
    const Evaluation evaluation = ask(candidate);
    return ProgramPeak{evaluation.peak_bytes, evaluation.peak_bytes == 0 ? evaluation.missing : ""};
  };
  return {.least =
              [=](const StateFactors& state) {
                return peak(state, [&](const Plan& candidate) { return evaluate->least_memory(candidate); });
              },
          .whole =
              [=](const StateFactors& state) {
                return peak(state, [&](const Plan& candidate) { return evaluate->memory(candidate); });
              }};
}

class Amsp final : public Planner {
 public:
  std::string_view name() const override { return "amsp"; }
  std::string_view summary() const override {
    return "parameters, gradients and optimizer states sharded independently, for the least communication that fits";
  }
  std::string_view source() const override { return "Chen et al., AMSP, 2024"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        OptionRow{"p", std::string(planner_word), "", "factor of parameters, ranks in a node x nodes; or planner"},
        OptionRow{"g", std::string(planner_word), "", "factor of gradients, that of p or of os; or planner"},
        OptionRow{"os", std::string(planner_word), "", "factor of optimizer states; or planner"},
        OptionRow{"sharding", std::string("inter_tensor"), "inter_tensor | intra_tensor",
                  "optimizer states: whole tensors dealt to ranks and broadcast, or even parts, all-gathered"},
        gradients_option("all_reduce"),
        OptionRow{"cost", std::string("analytic"), "paper | analytic | measured",
                  "where the planner takes the times of collectives from"},
        placement_option(),
        overlap_option(),
        OptionRow{"broadcast", std::string("none"), "none | next_forward",
                  "what hides the spreading of updated parameters"},
    };
    return rows;
  }

  Plan plan(const PlanRequest& request) const override {
    const Fixed fixed = fixed_factors(request);
    Plan plan = sharded_plan(request, {});
    plan.gathered_after_recompute = "keep";
    plan.overlap.broadcast = request.option<std::string>("broadcast");
    plan.optimizer.sharding = request.option<std::string>("sharding");
    plan.optimizer.spread = plan.optimizer.sharding == "inter_tensor" ? "broadcast" : "all_gather";
    if (fixed.all()) {
      set_state(plan, {.p = *fixed.p, .g = *fixed.g, .os = *fixed.os});
    } else {
      search(request, fixed, plan);
    }
    place_nodes(plan, request);
    return plan;
  }

 private:
  /// Sets @p plan's factors, and why.
  static void search(const PlanRequest& request, const Fixed& fixed, Plan& plan) {
    std::vector<StateFactors> candidates = legal_states(whole_grid(plan.mesh));
    std::erase_if(candidates, [&](const StateFactors& state) { return !fixed.allows(state); });
    if (candidates.empty()) {
      throw Unsupported(fmt::format("amsp on {} ranks: no legal factors have p = {}, g = {}, os = {}",
                                    plan.mesh.num_ranks(), request.option<std::string>("p"),
                                    request.option<std::string>("g"), request.option<std::string>("os")));
    }
    const std::unique_ptr<CostModel> costs =
        plan.mesh.num_ranks() > 1 ? cost_model_of(request, "set strategy.p, g and os") : nullptr;
    const StateCommunication communication(request.graph, plan, costs.get());
    const StateBytes states(request.graph, plan);
    const std::int64_t capacity = plan.device_capacity_bytes;
    const ProgramAccount account = account_of(request.evaluate, plan);
    ShardingAnswer answer = search_sharding(candidates, communication, states, capacity, account);
    if (!answer.best) {
      if (!answer.refusal.empty()) throw Unsupported(answer.refusal);
      Plan smallest = plan;
      set_state(smallest, answer.smallest->state);
      const Evaluation needed = request.evaluate->memory(smallest);
      if (needed.peak_bytes == 0) throw Unsupported(needed.missing);
      refuse_capacity(plan, answer.smallest->state, needed);
    }

    set_state(plan, answer.best->state);
    plan.why.predicted_seconds = answer.best->seconds.total();
    plan.why.predicted_peak_bytes = answer.best->peak_bytes;
    plan.why.binding = answer.blocked
                           ? fmt::format("memory: {}; does not fit: {}", gib(capacity), described(*answer.blocked))
                           : "nothing: the cheapest of all fits";
    if (answer.runner_up) plan.why.runner_up = described(*answer.runner_up);
  }
};

}  // namespace

const Planner& amsp_planner() {
  static const Amsp planner;
  return planner;
}

}  // namespace strata
