#include "predict/timeline_rows.hpp"

#include <string>

namespace strata::predict {
namespace {

double in_seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

std::vector<RecordedStep> recorded_steps(const SimulationResult& simulation, std::size_t of_class, int rank) {
  std::vector<RecordedStep> steps;
  for (std::size_t s = 0; s < simulation.steps.size(); ++s) {
    steps.push_back({.step = static_cast<std::int64_t>(s), .begin_ns = simulation.steps[s][of_class].begin_ns});
  }
  for (const TimelineEvent& event : simulation.events) {
    if (event.rank == rank) steps[static_cast<std::size_t>(event.step)].events.push_back(event);
  }
  return steps;
}

results::EventRow event_row(const Program& program, const TimelineEvent& event, std::int64_t step_begin_ns,
                            std::int64_t zero_ns) {
  const Instruction& in = program.body[static_cast<std::size_t>(event.instruction)];
  return {.rank = event.rank,
          .step = event.step,
          .stream = event.stream,
          .instruction = event.instruction,
          .name = instruction_label(in),
          .begin_seconds = in_seconds(event.begin_ns),
          .end_seconds = in_seconds(event.end_ns),
          .sent_bytes = event.bytes_sent,
          .phase = std::string(to_string(in.phase)),
          .micro_batch = in.micro_batch,
          .step_begin_seconds = in_seconds(step_begin_ns - zero_ns)};
}

results::MemoryRow memory_row(const MemorySample& sample, std::int64_t zero_ns) {
  const auto live = [&](Category category) { return sample.bytes[static_cast<int>(category)]; };
  return {.rank = sample.rank,
          .seconds = in_seconds(sample.time_ns - zero_ns),
          .parameter_bytes = live(Category::parameter),
          .gradient_bytes = live(Category::gradient),
          .optimizer_bytes = live(Category::optimizer),
          .activation_bytes = live(Category::activation),
          .workspace_bytes = live(Category::workspace),
          .communication_bytes = live(Category::communication)};
}

}  // namespace strata::predict
