#pragma once

/// @file
/// What tests evaluate of a training: a few synthetic samples, of which the last batch has fewer.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mpi/exec/training.hpp"
#include "predict/evaluation_inputs.hpp"
#include "predict/prepared_point.hpp"
#include "run/evaluation.hpp"

namespace strata::run {

inline constexpr std::int64_t num_evaluated = 11;

/// By buffer of the evaluation: what it was given of parameters, from its first element on.
using GivenValues = std::map<std::string, std::vector<float>>;

/// Hands everything on, and notes what is written.
class NotingExecutor final : public Executor {
 public:
  NotingExecutor(const Program& program, std::unique_ptr<Executor> executor, GivenValues& given)
      : program_(program), executor_(std::move(executor)), given_(given) {}
  void initialize() override { executor_->initialize(); }
  void submit(std::span<const StepContext> steps) override { executor_->submit(steps); }
  StepMeasurement complete(std::int64_t step) override { return executor_->complete(step); }
  void drain() override { executor_->drain(); }
  void write(int buffer, std::int64_t begin, std::span<const float> values) override {
    std::vector<float>& all = given_[program_.buffers[static_cast<std::size_t>(buffer)].name];
    all.resize(std::max(all.size(), static_cast<std::size_t>(begin) + values.size()));
    std::ranges::copy(values, all.begin() + begin);
    executor_->write(buffer, begin, values);
  }
  std::span<const TimelineEvent> events() const override { return executor_->events(); }
  std::span<const float> read(int buffer) const override { return executor_->read(buffer); }
  TouchedMemory touched_memory() const override { return executor_->touched_memory(); }

 private:
  const Program& program_;
  std::unique_ptr<Executor> executor_;
  GivenValues& given_;
};

/// Of what @p executor has trained, @p num_evaluated samples, 4 at a time. Collective.
inline results::EvaluationRow evaluate(const comm::World& world, const Training& training, const Program& program,
                                       const Executor& executor, GivenValues* given = nullptr) {
  predict::PreparedPoint point;
  point.graph = training.graph;
  point.plan.mesh = {.nodes = 1, .ranks_per_node = world.size(), .axes = {{"data", world.size()}}};
  point.experiment.data.format = "synthetic";
  point.experiment.data.num_samples = 100;
  point.experiment.evaluate = {.every = 1, .paths = {}, .batch = 4, .num_samples = num_evaluated};
  point.experiment.resources.threads_per_rank = 1;
  const predict::EvaluationInputs evaluated_inputs = predict::make_evaluation_inputs(
      point.experiment, point.graph, predict::evaluation_batch(point), "experiment.toml");
  const Evaluation evaluation(
      point, evaluated_inputs, 0,
      {.world = world,
       .engine =
           [&](const Program&) {
             return std::make_unique<comm::Engine>(world, comm::EngineOptions{.watchdog_seconds = 60});
           },
       .executor = [&](const Program& evaluated, comm::Engine& its, InputSource& inputs) -> std::unique_ptr<Executor> {
         auto made = std::make_unique<cpu::CpuExecutor>(evaluated, its, inputs, 1);
         if (given == nullptr) return made;
         return std::make_unique<NotingExecutor>(evaluated, std::move(made), *given);
       }});
  return evaluation.run(program, executor, training.steps);
}

}  // namespace strata::run
