#pragma once

/// @file
/// What tests evaluate of a training: a few synthetic samples, of which the last batch has fewer.

#include <memory>

#include "mpi/exec/training.hpp"
#include "run/evaluation.hpp"

namespace strata::run {

inline constexpr std::int64_t num_evaluated = 11;

/// Of what @p executor has trained, @p num_evaluated samples, 4 at a time. Collective.
inline results::EvaluationRow evaluate(const comm::World& world, const Training& training, const Program& program,
                                       const Executor& executor) {
  predict::PreparedPoint point;
  point.graph = training.graph;
  point.plan.mesh = {.nodes = 1, .ranks_per_node = world.size(), .axes = {{"data", world.size()}}};
  point.experiment.data.format = "synthetic";
  point.experiment.data.num_samples = 100;
  point.experiment.evaluate = {.every = 1, .paths = {}, .batch = 4, .num_samples = num_evaluated};
  point.experiment.resources.threads_per_rank = 1;
  const Evaluation evaluation(
      point, "experiment.toml", 0,
      {.world = world,
       .engine =
           [&](const Program&) {
             return std::make_unique<comm::Engine>(world, comm::EngineOptions{.watchdog_seconds = 60});
           },
       .executor = [](const Program& evaluated, comm::Engine& its, InputSource& inputs) -> std::unique_ptr<Executor> {
         return std::make_unique<cpu::CpuExecutor>(evaluated, its, inputs, 1);
       }});
  return evaluation.run(program, executor, training.steps);
}

}  // namespace strata::run
