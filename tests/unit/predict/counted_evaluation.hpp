#pragma once

/// @file
/// What another evaluation says, and how many plans, of which degrees, it is asked to simulate.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "planners/evaluate.hpp"
#include "planners/joint/plan_in_words.hpp"

namespace strata {

class CountedEvaluation : public Evaluate {
 public:
  /// @param of outlives this. @param tells_bounds else at_least() and few parts say nothing, so that every plan is
  /// simulated.
  explicit CountedEvaluation(const Evaluate& of, bool tells_bounds = true) : of_(of), tells_bounds_(tells_bounds) {}
  Evaluation operator()(const Plan& plan) const override {
    Evaluation evaluation = of_(plan);
    if (evaluation.step_seconds > 0.0) {
      ++num_simulated;
      degrees_in_words.insert(degrees_of_plan_in_words(plan));
    }
    return evaluation;
  }
  bool knows_seconds() const override { return of_.knows_seconds(); }
  std::optional<Evaluation> at_least(const Plan& plan) const override {
    return tells_bounds_ ? of_.at_least(plan) : std::nullopt;
  }
  std::optional<double> seconds_of_few(const Plan& plan, Tokens tokens) const override {
    return tells_bounds_ ? of_.seconds_of_few(plan, tokens) : std::nullopt;
  }
  Evaluation account(const Plan& plan) const override { return of_.account(plan); }
  Evaluation memory(const Plan& plan) const override { return of_.memory(plan); }
  Evaluation least_memory(const Plan& plan) const override { return of_.least_memory(plan); }
  PricedStep price(const Plan& plan, const ModelGraph& part) const override { return of_.price(plan, part); }
  double collective_seconds(Collective kind, const Mesh& mesh, std::span<const int> ranks,
                            std::int64_t bytes) const override {
    return of_.collective_seconds(kind, mesh, ranks, bytes);
  }

  mutable int num_simulated = 0;
  mutable std::set<std::string> degrees_in_words;  ///< of those that are simulated

 private:
  const Evaluate& of_;
  bool tells_bounds_;
};

}  // namespace strata
