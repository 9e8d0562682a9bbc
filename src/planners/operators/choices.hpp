#pragma once

/// @file
/// A model on a mesh as OSDP's problem: which ways each operator's states may be held, what each way costs in seconds
/// and bytes, and what the fullest moment of a step then holds.
///
/// With c, g, o bytes of a parameter, a gradient and its optimizer states, n_i elements, N ranks, M micro-batches, b
/// samples, t(o, v) a cost model's time of collective o on v bytes:
///     DP   t(AR, U) g n_i / U                        (c + g + o) n_i resident, nothing gathered
///     ZDP  M Σ_p [a_p t(AG, c n_p) + t(RS, g n_p)]    (c + g + o) n_i / N resident, gathered while it runs
///     SDP  M Σ_p t(RS, g n_p) + t(AG, c n_i)          c n_i + (g + o) n_i / N resident, nothing gathered
/// over the parameters p of the operator, a_p gathers each (units.hpp), U a gradient bucket. A linear cut into s slices
/// along its input: j of them ZDP, each gathered alone, the rest DP; norms and biases are ZDP where all slices are.
/// cost = "paper": 2 (N-1)(α + S/N β) for DP, 3 for ZDP, 4 with checkpointing, S all bytes of the operator or slice.
///
/// Memory, a closed form of the liveness of the run: states, plus at each operator's backward what is kept for it and
/// those before it and the gradients that exist by then (those that wait for their update, where that stands within
/// backward), plus the largest workspace. It orders and bounds and decides nothing where Programs are asked: the search
/// weighs millions of combinations of 194 operators × 4 slices, for which it needs bytes that add up over operators,
/// and what its answers' Programs need more or less moves the capacity that it is given (program_search.hpp). Of
/// operators that are alike the last ones are sharded first: their gradients come first, while activations are still
/// there. `cost = "paper"` sums instead: every operator's activations and M^extra, a gathered copy of every operator,
/// whether it is gathered or not.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cost/cost_model.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "planners/operators/compute_seconds.hpp"
#include "planners/operators/units.hpp"
#include "planners/search/choice_problem.hpp"

namespace strata {

enum class Hold : std::uint8_t { dp, sdp, zdp };

/// One way to hold an operator's states.
struct UnitChoice {
  Hold hold = Hold::dp;    ///< without slices
  int slices = 0;          ///< 0: whole
  int sharded_slices = 0;  ///< of them ZDP, the first ones; the others DP
  bool operator==(const UnitChoice&) const = default;
};

struct ChoiceOptions {
  Granularity granularity = Granularity::block;
  int slices = 4;  ///< of a linear's weight along its input; 0 or 1: none
  bool offers_sdp = false;
  bool paper = false;  ///< the paper's seconds and bytes, see above
  /// Parameters about which somebody else decides as well, and how their operators are held.
  std::vector<int> pinned{};
  Hold pinned_hold = Hold::dp;
  std::optional<Factor> sharded_over{};  ///< ranks that hold the same weights; nothing: data_grid() of the plan's mesh
};

class OperatorChoices {
 public:
  /// @param plan everything but the operators' rules and, where the planner chooses it, the batch. It, the graph and
  /// the costs outlive this.
  OperatorChoices(const ModelGraph& graph, const Plan& plan, const CostModel& costs, const ChoiceOptions& options);

  const ChoiceProblem& problem() const { return problem_; }
  ChoiceProblem& problem() { return problem_; }

  const std::vector<OperatorUnit>& units() const { return units_; }
  /// By unit: index into problem().classes.
  const std::vector<int>& classes() const { return class_of_; }
  /// What choice @p choice of unit @p unit means.
  const UnitChoice& meaning(std::size_t unit, int choice) const {
    return meanings_[unit][static_cast<std::size_t>(choice)];
  }

  /// What a micro-batch of one sample keeps for its backward, at most.
  std::int64_t kept_bytes_per_sample() const { return all_activation_bytes_; }

  /// Operator @p op of the graph can be cut into @p slices: a linear, its weight its own, its inputs divisible.
  bool is_sliced(int op, int slices) const;

  /// By unit the index of its choice: of a class the last units take the choices with the least resident bytes.
  std::vector<int> dealt(const Counts& counts) const;

  /// problem().peak_bytes is a lower bound that looks at sums alone; this is the same moments for @p choices, by unit.
  std::int64_t peak_bytes(std::span<const int> choices, std::int64_t samples) const;

 private:
  /// An operator's backward.
  struct Moment {
    std::int64_t bytes_per_sample = 0;      ///< kept activations and the operator's own gradients
    std::int64_t replicated_gradients = 0;  ///< bytes, of the operators before it in the graph, all DP
    int op = 0;
  };
  struct UnitCost {
    std::vector<Choice> choices;
    std::vector<std::vector<std::int64_t>> gradients;  ///< by choice, by operator of the unit: bytes
    std::vector<std::int64_t> persistent;              ///< by choice
  };
  std::vector<UnitChoice> choices_of(const OperatorUnit& unit) const;
  UnitCost cost_of(const OperatorUnit& unit, std::span<const UnitChoice> choices) const;
  double seconds_of(const OperatorUnit& unit, const UnitChoice& choice) const;
  double paper_seconds(const OperatorUnit& unit, const UnitChoice& choice) const;
  std::int64_t workspace_of(const OperatorUnit& unit, const UnitChoice& choice) const;
  void collect_moments();
  void collect_windows();
  std::int64_t peak_of_sums(std::int64_t resident, std::int64_t workspace, std::int64_t samples) const;
  double time(Collective kind, double bytes) const;

  const ModelGraph& graph_;
  const Plan& plan_;
  const CostModel& costs_;
  ChoiceOptions options_;
  std::vector<OperatorUnit> units_;
  std::vector<Gathers> gathers_;
  ComputeSeconds compute_;
  bool updates_in_backward_;
  Factor ranks_;                           ///< over which states may be sharded
  std::vector<int> num_uses_;              ///< by parameter: operators
  std::vector<Moment> moments_;            ///< by operator of the graph
  std::vector<Moment> peak_moments_;       ///< those of them that no other one exceeds in both
  std::vector<std::int64_t> windows_;      ///< by block: bytes gathered at a time where all of it is sharded
  std::int64_t all_activation_bytes_ = 0;  ///< of one sample
  std::vector<UnitCost> costs_of_units_;
  std::vector<std::vector<UnitChoice>> meanings_;  ///< by unit
  std::vector<int> class_of_;
  ChoiceProblem problem_;
};

}  // namespace strata
