#pragma once

/// @file
/// What planners ask of a plan, answered by lowering it and simulating its Programs with the costs that [planner]
/// names. Noise and stragglers of [simulate] are left out: they are no part of a plan's cost. A plan is simulated once:
/// modes whose searches meet, and `auto`, which asks all of them, ask for the same ones.

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "cost/cost_model.hpp"
#include "ir/model/model_graph.hpp"
#include "planners/evaluate.hpp"
#include "predict/prediction.hpp"
#include "predict/prepared_point.hpp"
#include "sim/simulate.hpp"

namespace strata::predict {

class PlanEvaluation final : public Evaluate {
 public:
  /// @param point without its plan. @param experiment_file a profile is found relative to it.
  PlanEvaluation(const PreparedPoint& point, std::string experiment_file);

  Evaluation operator()(const Plan& plan) const override;
  bool knows_seconds() const override;
  std::optional<Evaluation> at_least(const Plan& plan) const override;
  std::optional<double> seconds_of_few(const Plan& plan, Tokens tokens) const override;
  Evaluation account(const Plan& plan) const override;
  Evaluation memory(const Plan& plan) const override;
  Evaluation least_memory(const Plan& plan) const override;
  std::vector<std::int64_t> peaks_of_places(const Plan& plan, std::span<const int> places,
                                            PeaksOf programs) const override;
  PricedStep price(const Plan& plan, const ModelGraph& part) const override;
  double collective_seconds(Collective kind, const Mesh& mesh, std::span<const int> ranks,
                            std::int64_t bytes) const override;
  bool has_a_nic_to_itself(const Mesh& mesh) const override;

 private:
  /// Made when the first plan needs them: a mode that never asks needs no profile.
  const CostModel& costs() const;
  /// Of point_ with @p plan, or of a point whose model differs. @param costs null: the account alone.
  static Evaluation evaluate(PreparedPoint point, const CostModel* costs);
  Evaluation evaluate(const Plan& plan, const CostModel* costs) const;
  /// Seconds and peak of @p plan are told sooner one by one than together.
  static bool told_apart(const Plan& plan);
  /// As operator(), from a step without addresses and from memory().
  Evaluation apart(const Plan& plan) const;
  /// What @p value_of says, asked once for each @p question. @param is_kept says which answers are; null: all.
  template <typename Value, typename ValueOf>
  Value once(std::unordered_map<std::string, Value>& known, std::string question, const ValueOf& value_of,
             bool (*is_kept)(const std::type_identity_t<Value>&) = nullptr) const;
  /// Of @p plan; nothing of one that is refused, which says so where it is asked.
  template <typename Value, typename ValueOf>
  std::optional<Value> told_once(std::unordered_map<std::string, std::optional<Value>>& known, const Plan& plan,
                                 const ValueOf& value_of) const;
  /// What @p evaluation_of says of @p plan, asked once of each that lowers, whichever mode made it.
  template <typename EvaluationOf>
  Evaluation lowered_once(std::unordered_map<std::string, Evaluation>& known, const Plan& plan,
                          const EvaluationOf& evaluation_of) const;
  Evaluation memory_of(const Plan& plan) const;
  Evaluation least_memory_of(const Plan& plan) const;
  std::vector<std::int64_t> peaks_by_place(const Plan& plan, std::span<const int> places, PeaksOf programs) const;
  std::optional<double> seconds_of_few_blocks(const Plan& plan, const ModelGraph& graph) const;
  std::optional<double> seconds_of_few_micro_batches(const Plan& plan, const ModelGraph& graph) const;
  /// Of a step of a part of the model or of the batch. @throws Unsupported as lowering does.
  double seconds_of_part(const Plan& plan, const ModelGraph& graph) const;
  std::optional<Evaluation> at_least_of_dealt_tensors(const PreparedPoint& point) const;
  std::optional<Evaluation> at_least_of_even_vocabulary(PreparedPoint point) const;
  /// The model without the tokens of its vocabulary that are left over if @p parts have as many each. Null: none are,
  /// or there is no vocabulary, or it has fewer than two tokens a part.
  const ModelGraph* with_even_vocabulary(int parts) const;

  PreparedPoint point_;
  std::string experiment_file_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, Evaluation> simulated_;                ///< by text of the plan of any mode
  mutable std::unordered_map<std::string, std::optional<Evaluation>> at_least_;  ///< nothing: see at_least()
  mutable std::array<std::unordered_map<std::string, std::optional<double>>, 2>
      of_few_;                                                        ///< of all tokens, and of those that divide
  mutable std::unordered_map<std::string, Evaluation> memory_;        ///< see memory()
  mutable std::unordered_map<std::string, Evaluation> least_memory_;  ///< see least_memory()
  mutable std::unordered_map<std::string, std::vector<std::int64_t>> peaks_;  ///< see peaks_of_places()
  mutable std::map<int, std::optional<ModelGraph>> even_vocabularies_;        ///< by number of parts
  mutable std::once_flag once_;
  mutable std::unique_ptr<CostModel> costs_;
};

}  // namespace strata::predict
