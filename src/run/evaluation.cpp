#include "run/evaluation.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "base/ceil_div.hpp"
#include "base/error.hpp"
#include "ir/program/training_state.hpp"
#include "run/assigned_states.hpp"
#include "run/running_statistics.hpp"

namespace strata::run {
namespace {

/// Elements [begin, begin + count) of a parameter, as bytes in front of their values.
struct Elements {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Of one parameter, whose elements are spread over the ranks. Collective.
std::vector<float> whole(const comm::World& world, const Parameter& parameter, std::span<const AssignedState> given,
                         const Executor& executor) {
  std::string mine;
  for (const AssignedState& state : given) {
    if (state.part->parameter != parameter.name || state.state.name != "value") continue;
    const Operand& operand = state.state.operand;
    const std::span<const float> values = executor.read(operand.buffer);
    state.part->block.for_runs(state.part->begin, operand.num_elements,
                               [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
                                 const Elements run{in_whole, count};
                                 mine.append(reinterpret_cast<const char*>(&run), sizeof run);
                                 mine.append(reinterpret_cast<const char*>(values.data() + operand.begin + at),
                                             static_cast<std::size_t>(count) * sizeof(float));
                               });
  }
  std::vector<float> values(static_cast<std::size_t>(parameter.num_elements()));
  for (const std::string& theirs : world.all_gather(mine)) {
    for (std::size_t at = 0; at < theirs.size();) {
      Elements run;
      std::memcpy(&run, theirs.data() + at, sizeof run);
      at += sizeof run;
      const std::size_t bytes = static_cast<std::size_t>(run.count) * sizeof(float);
      std::memcpy(values.data() + run.begin, theirs.data() + at, bytes);
      at += bytes;
    }
  }
  return values;
}

}  // namespace

Evaluation::Evaluation(const predict::PreparedPoint& point, const predict::EvaluationInputs& inputs,
                       std::int64_t training_bytes, Machinery machinery)
    : point_(point),
      lowered_(predict::lower_evaluation_for_run(point, machinery.world.rank(), training_bytes)),
      inputs_(inputs),
      with_(std::move(machinery)) {}

void Evaluation::bring_values(const Program& program, const Executor& from, std::int64_t trained_steps,
                              Executor& to) const {
  const std::vector<KeptPart> parts = kept_parts(program, trained_steps - 1);
  const std::vector<AssignedState> given = assign_states(with_.world, point_.graph, parts);
  const RunningStatisticsOfModel statistics = running_statistics(with_.world, point_.graph, program, from);
  const std::vector<HeldWeight> weights = held_weights(lowered_.program);
  const auto put = [&](const std::string& parameter, std::span<const float> values) {
    for (const HeldWeight& weight : weights) {
      if (weight.parameter != parameter) continue;
      const Buffer& held = lowered_.program.buffers[static_cast<std::size_t>(weight.buffer)];
      held.block.for_runs(
          held.parameter_begin, held.num_elements, [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
            to.write(weight.buffer, at,
                     values.subspan(static_cast<std::size_t>(in_whole), static_cast<std::size_t>(count)));
          });
    }
  };
  for (const Parameter& parameter : point_.graph.parameters) {
    put(parameter.name, whole(with_.world, parameter, given, from));
  }
  for (const Operator& op : lowered_.graph.operators) {
    if (op.kind != OperatorKind::batch_norm_inference) continue;
    const auto name = [&](std::size_t i) -> const std::string& {
      return lowered_.graph.parameters[static_cast<std::size_t>(op.parameters[i])].name;
    };
    put(name(2), statistics.at(name(0)).mean);
    put(name(3), statistics.at(name(0)).variance);
  }
}

results::EvaluationRow Evaluation::run(const Program& program, const Executor& executor,
                                       std::int64_t trained_steps) const {
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<comm::Engine> engine = with_.engine(lowered_.program);
  const std::unique_ptr<Executor> evaluating = with_.executor(lowered_.program, *engine, *inputs_.source);
  evaluating->initialize();
  bring_values(program, executor, trained_steps, *evaluating);
  const Operator& last = lowered_.graph.operators.back();
  STRATA_INVARIANT(last.kind == OperatorKind::top_k, "the model ends with its loss");
  const std::int64_t rows_of_sample =
      lowered_.graph.tensors[static_cast<std::size_t>(last.outputs.front())].elements_per_sample();
  std::array<double, 3> sums{};  // of losses, top-1 and top-5, over rows
  const std::int64_t num_steps = ceil_div(inputs_.num_samples, lowered_.batch);
  for (std::int64_t step = 0; step < num_steps; ++step) {
    const StepMeasurement measured = run_step(*evaluating, {.step = step, .learning_rate = 0.0});
    sums[0] += static_cast<double>(measured.loss) * static_cast<double>(lowered_.batch * rows_of_sample);
    const std::span<const float> correct = evaluating->read(lowered_.program.correct_buffer);
    sums[1] += static_cast<double>(correct[0]);
    sums[2] += static_cast<double>(correct[1]);
  }
  with_.world.all_reduce_sum(sums);
  std::array<double, 1> arena = {static_cast<double>(evaluating->touched_memory().total_bytes)};
  with_.world.all_reduce_max(arena);
  const std::int64_t num_rows = inputs_.num_samples * rows_of_sample;
  const auto share = [&](double sum) { return sum / static_cast<double>(num_rows); };
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.trained_steps = trained_steps,
          .unix_seconds = std::chrono::duration<double>(now).count(),
          .evaluation_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          .num_samples = num_rows,
          .loss = share(sums[0]),
          .top_1 = share(sums[1]),
          .top_5 = share(sums[2]),
          .arena_bytes = static_cast<std::int64_t>(arena[0])};
}

}  // namespace strata::run
