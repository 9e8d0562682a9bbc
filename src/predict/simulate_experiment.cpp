#include "predict/simulate_experiment.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/in_processes.hpp"
#include "base/progress.hpp"
#include "cost/peak_rate.hpp"
#include "interchange/chrome.hpp"
#include "ir/timeline/memory_over_time.hpp"
#include "predict/point_facts.hpp"
#include "predict/prediction.hpp"
#include "predict/progress_line.hpp"
#include "predict/repeated_micro_batches.hpp"
#include "predict/selected_point.hpp"
#include "predict/timeline_rows.hpp"
#include "results/outcome.hpp"
#include "results/recorder.hpp"

namespace strata::predict {
namespace {

void set_simulated(results::AttemptFacts& facts, const ResourcesSection& resources) {
  facts.simulated = true;
  facts.num_nodes = static_cast<int>(resources.nodes);
  facts.ranks_per_node = static_cast<int>(resources.ranks_per_node);
  facts.num_ranks = facts.num_nodes * facts.ranks_per_node;
  facts.host_names.assign(static_cast<std::size_t>(facts.num_ranks), "simulated");
  facts.transport = "simulated";
  facts.progress_mode = "simulated";
}

results::AttemptFacts facts_of(const Environment& environment, const Point& point, const PreparedPoint& prepared) {
  results::AttemptFacts facts = facts_of_point(environment, prepared, point.id);
  set_simulated(facts, prepared.experiment.resources);
  facts.device_names.assign(static_cast<std::size_t>(facts.num_ranks), prepared.cluster.device);
  return facts;
}

/// Of a point for which there is no plan: what was asked for.
results::AttemptFacts facts_without_plan(const Environment& environment, const Point& point) {
  results::AttemptFacts facts = facts_of_experiment(environment, point.experiment, point.id);
  set_simulated(facts, point.experiment.resources);
  return facts;
}

/// The denominator of MFU: a described cluster's nameplate, a profiled machine's measured product.
void set_peak(results::AttemptFacts& facts, const PreparedPoint& point, const std::string& experiment_file) {
  const DType dtype = point.plan.dtypes.compute;
  if (point.cluster.name == "this") {
    const CostProfile profile = load_profile(point.experiment, experiment_file);
    for (const MeasuredRate& peak : profile.peaks) {  // unknown where the profile did not compute in this dtype
      if (peak.dtype == to_string(dtype) && peak.ranks_on_node == point.experiment.ranks_per_machine()) {
        facts.peak_flops_per_second = peak.flops_per_second;
      }
    }
    facts.peak_source = "profile of " + profile.machine;
  } else {
    facts.peak_flops_per_second = peak_flops_per_second(point.cluster, dtype);
    facts.peak_source = "cluster " + point.cluster.name;
  }
}

class PointSimulation {
 public:
  /// @param progress hidden where this writes.
  PointSimulation(const Environment& environment, const SimulateArguments& arguments, const Point& point,
                  Progress& progress)
      : environment_(environment), arguments_(arguments), point_(point), progress_(progress) {}

  results::Status run() {
    const std::string& file = arguments_.experiment.file;
    std::optional<results::Recorder> recorder;
    results::Outcome outcome;
    try {
      const PreparedPoint prepared = prepare_point(point_.experiment, file, arguments_.experiment.plan_file);
      const std::unique_ptr<CostModel> costs = cost_model(prepared, file);
      results::AttemptFacts facts = facts_of(environment_, point_, prepared);
      set_peak(facts, prepared, file);
      recorder.emplace(folder(), facts);
      record(*recorder, prepared, *costs, facts);
    } catch (const OutOfMemory& e) {
      outcome = results::outcome_of(e);
    } catch (const Unsupported& e) {
      outcome = results::outcome_of(e);
    }
    if (!recorder) recorder.emplace(folder(), facts_without_plan(environment_, point_));
    recorder->finish(outcome.status, outcome.message);
    if (outcome.status != results::Status::ok) {
      progress_.hide();
      say_error("strata: point {}: {}: {}\n", point_.index, results::to_string(outcome.status), outcome.message);
    }
    return outcome.status;
  }

 private:
  std::string folder() const {
    return fmt::format("{}/{}/{}", arguments_.results_folder, point_.experiment.name, point_.id);
  }

  void record(results::Recorder& recorder, const PreparedPoint& prepared, const CostModel& costs,
              const results::AttemptFacts& facts) {
    const bool wants_events = prepared.experiment.measure.timeline_steps > 0 || !arguments_.trace_file.empty();
    if (!wants_events) {
      const std::optional<RepeatedStep> repeated = repeated_step(prepared, costs);
      const std::int64_t capacity_bytes = prepared.plan.device_capacity_bytes;
      // What does not fit is said of the instruction that finds no room, among all micro-batches.
      if (repeated && (capacity_bytes == 0 || repeated->row.arena_peak_bytes <= capacity_bytes)) {
        record_rows(recorder, prepared, repeated->lowered, repeated->simulation, facts,
                    [&](std::int64_t) { return repeated->row; });
        return;
      }
    }
    const LoweredJob lowered = lower_job(prepared);
    const SimulationResult simulation = predict(prepared, lowered, costs).simulation;
    const std::int64_t num_steps = prepared.experiment.simulate.steps;
    const StepRange steps{simulation.steady_step + 1 - num_steps, simulation.steady_step};
    record_rows(recorder, prepared, lowered, simulation, facts,
                [&](std::int64_t step) { return step_row(prepared, lowered, simulation, steps.first + step); });
    add_timeline(recorder, prepared, lowered, simulation, steps);
    if (!arguments_.trace_file.empty()) write_trace(lowered, simulation, steps);
  }

  /// @param row_of of a step that is recorded, from 0 on.
  void record_rows(results::Recorder& recorder, const PreparedPoint& prepared, const LoweredJob& lowered,
                   const SimulationResult& simulation, const results::AttemptFacts& facts,
                   const std::function<results::StepRow(std::int64_t)>& row_of) {
    if (prepared.experiment.evaluate.every > 0) {
      const auto bytes = static_cast<double>(evaluation_arena_bytes(prepared, lowered));
      recorder.add_prediction({"arena_bytes", "byte", bytes, results::unknown, "program"});
    }
    for (std::int64_t step = 0; step < prepared.experiment.simulate.steps; ++step) {
      results::StepRow row = row_of(step);
      row.step = step;
      recorder.add_step(row);
      if (step == 0) {
        progress_.hide();
        say("{:4} ranks  {:<10} {:<10} {}\n", facts.num_ranks, facts.model_name, facts.strategy_name,
            progress_line(facts, row));
      }
    }
    if (simulation.period_steps != 1 && prepared.experiment.simulate.noise == 0.0) {
      say("      {}\n", simulation.period_steps > 1
                            ? fmt::format("steps repeat every {} of them", simulation.period_steps)
                            : fmt::format("steps have not begun to repeat after {}", simulation.steps.size()));
    }
    const double extrapolated = extrapolated_share(simulation);
    if (extrapolated > 0.0) {
      say("      {:.1f} % of the time is extrapolated beyond what the profile measured\n", 100.0 * extrapolated);
    }
  }

  /// Of the first of @p steps. Ranks of different kinds have different instructions and streams: both are numbered anew
  /// by name.
  void write_trace(const LoweredJob& lowered, const SimulationResult& simulation, StepRange steps) const {
    Timeline timeline{.simulated = true, .streams = {}, .instructions = {}, .events = {}};
    std::vector<MemorySample> memory;
    std::map<std::string, int> streams;
    std::map<std::string, int> labels;
    const auto number = [](std::map<std::string, int>& numbers, std::vector<std::string>& names,
                           const std::string& name) {
      const auto [found, is_new] = numbers.try_emplace(name, static_cast<int>(names.size()));
      if (is_new) names.push_back(name);
      return found->second;
    };
    for (std::size_t c = 0; c < lowered.programs.size(); ++c) {
      const Program& program = lowered.programs[c];
      const std::vector<RecordedStep> recorded = recorded_steps(simulation, c, program.rank);
      const RecordedStep& shown = recorded[static_cast<std::size_t>(steps.first)];
      for (MemorySample sample : memory_over_time(program, recorded, {steps.first, steps.first})) {
        sample.time_ns -= shown.begin_ns;
        memory.push_back(sample);
      }
      for (TimelineEvent e : shown.events) {
        const Instruction& in = program.body[static_cast<std::size_t>(e.instruction)];
        e.step = 0;
        e.stream = number(streams, timeline.streams, program.streams[static_cast<std::size_t>(in.stream)]);
        e.instruction = number(labels, timeline.instructions, instruction_label(in));
        timeline.events.push_back(e);
      }
    }
    std::ofstream file(arguments_.trace_file);
    file << to_chrome_trace(timeline, memory);
    file.close();
    if (!file) throw UserError(arguments_.trace_file + ": cannot be written");
  }

  /// Of as many of @p steps, which are recorded as steps from 0 on, as are asked for: events and memory.
  void add_timeline(results::Recorder& recorder, const PreparedPoint& prepared, const LoweredJob& lowered,
                    const SimulationResult& simulation, StepRange steps) {
    const std::int64_t num_asked = prepared.experiment.measure.timeline_steps;
    const StepRange asked{steps.first, std::min(steps.last, steps.first + num_asked - 1)};
    if (num_asked == 0) return;
    const auto class_of_rank_0 = static_cast<std::size_t>(lowered.class_of_rank.front());
    const std::int64_t zero_ns = simulation.steps[static_cast<std::size_t>(asked.first)][class_of_rank_0].begin_ns;
    std::vector<results::EventRow> events;
    std::vector<results::MemoryRow> memory;
    for (std::size_t c = 0; c < lowered.programs.size(); ++c) {
      const Program& program = lowered.programs[c];
      const std::vector<RecordedStep> recorded = recorded_steps(simulation, c, program.rank);
      for (const RecordedStep& step : recorded) {
        if (!asked.contains(step.step)) continue;
        for (TimelineEvent event : step.events) {
          event.step -= steps.first;
          events.push_back(event_row(program, event, step.begin_ns, zero_ns));
        }
      }
      for (const MemorySample& sample : memory_over_time(program, recorded, asked)) {
        memory.push_back(memory_row(sample, zero_ns));
      }
    }
    recorder.add_events(events);
    recorder.add_memory(memory);
  }

  const Environment& environment_;
  const SimulateArguments& arguments_;
  const Point& point_;
  Progress& progress_;
};

}  // namespace

int simulate_experiment(const SimulateArguments& arguments, const Environment& environment) {
  const LoadedExperiment loaded = load_points(arguments.experiment, "simulated");
  if (!arguments.trace_file.empty()) selected_point(loaded, arguments.experiment);  // a trace is of one point
  std::vector<const Point*> points;
  for (const Point& point : loaded.expansion.points) {
    if (!arguments.experiment.point || point.index == *arguments.experiment.point) points.push_back(&point);
  }
  if (points.empty()) selected_point(loaded, arguments.experiment);  // says which there are
  Progress progress("simulated", points.size(), environment.terminal);
  const std::vector<int> statuses = in_processes(
      "point", points.size(), arguments.num_processes > 0 ? arguments.num_processes : available_cores(),
      [&](std::size_t i) {
        return static_cast<int>(PointSimulation(environment, arguments, *points[i], progress).run());
      },
      [&](std::size_t num_done) { progress.show(num_done); }, [&] { progress.hide(); });
  int worst = exit_ok;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto status = static_cast<results::Status>(statuses[i]);
    if (status == results::Status::ok) continue;
    const bool single = loaded.expansion.points.size() == 1 || arguments.experiment.point.has_value();
    worst = single                                              ? exit_code_of(status)
            : is_expected(points[i]->experiment.expect, status) ? worst
                                                                : int{exit_some_failed};
  }
  return worst;
}

}  // namespace strata::predict
