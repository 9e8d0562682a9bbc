#include "run/prediction_rows.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "results/columns.hpp"

namespace strata::run {

std::vector<results::PredictionRow> account_predictions(const comm::World& world, const Program& program,
                                                        const MemoryPeak& peak, const results::StepRow& last) {
  double largest[2] = {static_cast<double>(program.arena_bytes), static_cast<double>(peak.total_bytes)};
  world.all_reduce_max(largest);
  const BytesByCollective mine = bytes_by_collective(program);
  double sent[num_collectives];
  for (int k = 0; k < num_collectives; ++k) sent[k] = static_cast<double>(mine.bytes[k]);
  world.all_reduce_max(sent);
  std::vector<results::PredictionRow> rows = {
      {"arena_peak_bytes", "byte", largest[0], static_cast<double>(last.arena_peak_bytes), "program"}};
  for (const Collective kind : results::sending_collectives) {
    const auto k = static_cast<std::size_t>(kind);
    rows.push_back(
        {results::sent_bytes_column(kind), "byte", sent[k], static_cast<double>(last.sent_bytes[k]), "program"});
  }
  if (!std::isnan(last.device_memory_taken_bytes)) {
    rows.push_back({"device_memory_taken_bytes", "byte", largest[0], last.device_memory_taken_bytes, "program"});
  }
  return rows;
}

results::PredictionRow evaluation_prediction(const comm::World& world, const Program& evaluation,
                                             const results::EvaluationRow& last) {
  double largest[1] = {static_cast<double>(evaluation.arena_bytes)};
  world.all_reduce_max(largest);
  return {"arena_bytes", "byte", largest[0], static_cast<double>(last.arena_bytes), "program"};
}

std::vector<results::PredictionRow> time_predictions(const Program& program, const PredictedStep& predicted,
                                                     std::span<const results::StepRow> measured_rows,
                                                     std::span<const TimelineEvent> timeline) {
  const std::pair<const char*, double results::StepRow::*> members[] = {
      {"step_seconds_max", &results::StepRow::step_seconds_max},
      {"compute_seconds", &results::StepRow::compute_seconds},
      {"communication_seconds", &results::StepRow::communication_seconds},
      {"exposed_communication_seconds", &results::StepRow::exposed_communication_seconds}};
  std::vector<results::PredictionRow> rows;
  if (measured_rows.empty()) return rows;
  for (const auto& [name, member] : members) {
    std::vector<double> values;
    for (const results::StepRow& row : measured_rows) {
      if (!std::isnan(row.*member)) values.push_back(row.*member);
    }
    if (values.empty()) continue;  // instructions are not timed
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
    rows.push_back({name, "s", predicted.row.*member, values[values.size() / 2], predicted.prediction.source});
  }
  std::map<std::string, double> measured;
  std::set<std::int64_t> steps;
  for (const TimelineEvent& e : timeline) {
    const Instruction& in = program.body[static_cast<std::size_t>(e.instruction)];
    const std::string name = in.is_collective() ? fmt::format("collective.{}", to_string(in.collective))
                                                : fmt::format("kernel.{}", kernel_signature(in.kernel).name);
    measured[name] += static_cast<double>(e.end_ns - e.begin_ns) * 1e-9;
    steps.insert(e.step);
  }
  const auto add = [&](const std::string& name, double predicted_seconds) {
    if (!steps.empty()) {
      rows.push_back({name + "_seconds", "s", predicted_seconds, measured[name] / static_cast<double>(steps.size()),
                      predicted.prediction.source});
    }
  };
  for (const auto& [kernel, seconds] : predicted.prediction.kernel_seconds) add("kernel." + kernel, seconds);
  for (const auto& [kind, seconds] : predicted.prediction.collective_seconds) add("collective." + kind, seconds);
  return rows;
}

}  // namespace strata::run
