#pragma once

/// @file
/// What has been trained, tried on other samples: its values are brought to the ranks as the evaluation's plan has them
/// (lower/evaluation.hpp), whatever the training's is, and its Program runs once a batch. Memory is taken when it
/// begins and given back when it ends.

#include <cstdint>
#include <functional>
#include <memory>

#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "exec/executor.hpp"
#include "predict/evaluation_inputs.hpp"
#include "predict/prepared_point.hpp"
#include "results/rows.hpp"

namespace strata::run {

class Evaluation {
 public:
  using MakeEngine = std::function<std::unique_ptr<comm::Engine>(const Program&)>;
  using MakeExecutor = std::function<std::unique_ptr<Executor>(const Program&, comm::Engine&, InputSource&)>;
  struct Machinery {
    const comm::World& world;
    MakeEngine engine;
    MakeExecutor executor;
  };
  /// @param point, inputs outlive this; of evaluation_batch() samples.  @param training_bytes the arena of the
  /// training, which stays.
  /// @throws Unsupported; OutOfMemory: no room beside the training.
  Evaluation(const predict::PreparedPoint& point, const predict::EvaluationInputs& inputs, std::int64_t training_bytes,
             Machinery machinery);

  /// Collective, with no step of @p executor under way, which runs @p program and has trained @p trained_steps steps.
  /// Sums are equal on all ranks; `epoch` is left to the caller.
  results::EvaluationRow run(const Program& program, const Executor& executor, std::int64_t trained_steps) const;

  /// Of this rank.
  const Program& program() const { return lowered_.program; }

 private:
  void bring_values(const Program& program, const Executor& from, std::int64_t trained_steps, Executor& to) const;

  const predict::PreparedPoint& point_;
  predict::LoweredEvaluation lowered_;
  const predict::EvaluationInputs& inputs_;
  Machinery with_;
};

}  // namespace strata::run
