/// @file
/// Here stands the name and the unit of every column and attribute, once.

#include "results/columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "results/hdf5.hpp"
#include "results/hdf5_version.hpp"

namespace strata::results {

std::string_view to_string(StepPhase phase) {
  static constexpr std::array<std::string_view, num_step_phases> words = {"warmup", "measured", "fill", "drain"};
  return words.at(static_cast<std::size_t>(phase));
}

std::string sent_bytes_column(Collective kind) { return fmt::format("{}_sent_bytes", to_string(kind)); }

std::span<const Column<StepRow>> step_columns() {
  static const std::vector<Column<StepRow>> columns = [] {
    std::vector<Column<StepRow>> list = {
        {"step", "1", &StepRow::step},
        {"phase", "", &StepRow::phase},
        {"unix_seconds", "s", &StepRow::unix_seconds},
        {"step_seconds_max", "s", &StepRow::step_seconds_max},
        {"step_seconds_median", "s", &StepRow::step_seconds_median},
        {"compute_seconds", "s", &StepRow::compute_seconds},
        {"communication_seconds", "s", &StepRow::communication_seconds},
        {"exposed_communication_seconds", "s", &StepRow::exposed_communication_seconds},
        {"other_seconds", "s", &StepRow::other_seconds},
        {"input_seconds", "s", &StepRow::input_seconds},
        {"slowest_rank_compute_seconds", "s", &StepRow::slowest_rank_compute_seconds},
        {"slowest_rank_exposed_seconds", "s", &StepRow::slowest_rank_exposed_seconds},
        {"busy_share", "1", &StepRow::busy_share},
        {"loss", "1", &StepRow::loss},
        {"learning_rate", "1", &StepRow::learning_rate},
        {"gradient_norm", "1", &StepRow::gradient_norm},
        {"num_samples", "1", &StepRow::num_samples},
    };
    for (const Collective kind : sending_collectives) {
      list.push_back({sent_bytes_column(kind), "byte", OfCollective<StepRow>{&StepRow::sent_bytes, kind}});
    }
    const std::vector<Column<StepRow>> rest = {
        {"parameter_bytes", "byte", &StepRow::parameter_bytes},
        {"gradient_bytes", "byte", &StepRow::gradient_bytes},
        {"optimizer_bytes", "byte", &StepRow::optimizer_bytes},
        {"activation_bytes", "byte", &StepRow::activation_bytes},
        {"workspace_bytes", "byte", &StepRow::workspace_bytes},
        {"communication_bytes", "byte", &StepRow::communication_bytes},
        {"arena_peak_bytes", "byte", &StepRow::arena_peak_bytes},
        {"outside_arena_peak_bytes", "byte", &StepRow::outside_arena_peak_bytes},
        {"energy_joules", "J", &StepRow::energy_joules},
        {"power_watts", "W", &StepRow::power_watts},
        {"sm_clock_hertz", "s-1", &StepRow::sm_clock_hertz},
        {"memory_clock_hertz", "s-1", &StepRow::memory_clock_hertz},
        {"clock_event_reasons", "1", &StepRow::clock_event_reasons},
        {"device_memory_used_bytes", "byte", &StepRow::device_memory_used_bytes},
        {"device_memory_taken_bytes", "byte", &StepRow::device_memory_taken_bytes},
    };
    list.insert(list.end(), rest.begin(), rest.end());
    return list;
  }();
  return columns;
}

std::span<const Column<EventRow>> event_columns() {
  static const std::array<Column<EventRow>, 11> columns = {{
      {"rank", "1", &EventRow::rank},
      {"step", "1", &EventRow::step},
      {"stream", "1", &EventRow::stream},
      {"instruction", "1", &EventRow::instruction},
      {"name", "", &EventRow::name},
      {"begin_seconds", "s", &EventRow::begin_seconds},
      {"end_seconds", "s", &EventRow::end_seconds},
      {"sent_bytes", "byte", &EventRow::sent_bytes},
      {"phase", "", &EventRow::phase},
      {"micro_batch", "1", &EventRow::micro_batch},
      {"step_begin_seconds", "s", &EventRow::step_begin_seconds},
  }};
  return columns;
}

std::span<const Column<PredictionRow>> prediction_columns() {
  static const std::array<Column<PredictionRow>, 5> columns = {{
      {"metric", "", &PredictionRow::metric},
      {"unit", "", &PredictionRow::unit},
      // The unit of both stands in the row; "1" would be a lie, so the units attribute points to the column.
      {"predicted", "see unit", &PredictionRow::predicted},
      {"measured", "see unit", &PredictionRow::measured},
      {"source", "", &PredictionRow::source},
  }};
  return columns;
}

std::span<const Column<EvaluationRow>> evaluation_columns() {
  static const std::array<Column<EvaluationRow>, 9> columns = {{
      {"trained_steps", "1", &EvaluationRow::trained_steps},
      {"epoch", "1", &EvaluationRow::epoch},
      {"unix_seconds", "s", &EvaluationRow::unix_seconds},
      {"evaluation_seconds", "s", &EvaluationRow::evaluation_seconds},
      {"num_samples", "1", &EvaluationRow::num_samples},
      {"loss", "1", &EvaluationRow::loss},
      {"top_1", "1", &EvaluationRow::top_1},
      {"top_5", "1", &EvaluationRow::top_5},
      {"arena_bytes", "byte", &EvaluationRow::arena_bytes},
  }};
  return columns;
}

std::span<const Column<MemoryRow>> memory_columns() {
  static const std::array<Column<MemoryRow>, 8> columns = {{
      {"rank", "1", &MemoryRow::rank},
      {"seconds", "s", &MemoryRow::seconds},
      {"parameter_bytes", "byte", &MemoryRow::parameter_bytes},
      {"gradient_bytes", "byte", &MemoryRow::gradient_bytes},
      {"optimizer_bytes", "byte", &MemoryRow::optimizer_bytes},
      {"activation_bytes", "byte", &MemoryRow::activation_bytes},
      {"workspace_bytes", "byte", &MemoryRow::workspace_bytes},
      {"communication_bytes", "byte", &MemoryRow::communication_bytes},
  }};
  return columns;
}

std::span<const Column<Summary>> summary_columns() {
  static const std::array<Column<Summary>, 17> columns = {{
      {"status", "", &Summary::status},
      {"message", "", &Summary::message},
      {"parameter_checksum", "", &Summary::parameter_checksum},
      {"num_warmup_steps", "1", &Summary::num_warmup_steps},
      {"num_measured_steps", "1", &Summary::num_measured_steps},
      {"num_fill_steps", "1", &Summary::num_fill_steps},
      {"num_drain_steps", "1", &Summary::num_drain_steps},
      {"median_step_seconds", "s", &Summary::median_step_seconds},
      {"median_compute_seconds", "s", &Summary::median_compute_seconds},
      {"median_communication_seconds", "s", &Summary::median_communication_seconds},
      {"median_exposed_communication_seconds", "s", &Summary::median_exposed_communication_seconds},
      {"first_loss", "1", &Summary::first_loss},
      {"last_loss", "1", &Summary::last_loss},
      {"arena_peak_bytes", "byte", &Summary::arena_peak_bytes},
      {"outside_arena_peak_bytes", "byte", &Summary::outside_arena_peak_bytes},
      {"recording_seconds", "s", &Summary::recording_seconds},
      {"recording_cpu_seconds", "s", &Summary::recording_cpu_seconds},
  }};
  return columns;
}

namespace {

std::vector<std::string> assignments(const std::map<std::string, std::string>& values) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : values) {
    lines.push_back(fmt::format("{}={}", name, value));
  }
  return lines;
}

double median(std::vector<double> values) {
  if (values.empty()) {
    return unknown;
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

}  // namespace

std::vector<Attribute> root_attributes(const AttemptFacts& facts, std::int64_t attempt, const std::string& start_time) {
  auto libraries = facts.library_versions;
  libraries["HDF5"] = hdf5_version();
  return {
      {"schema_name", std::string(schema_name)},
      {"schema_version", std::string(schema_version)},
      {"creator", std::string("strata")},
      {"creator_version", facts.creator_version},
      {"git_commit", facts.git_commit},
      {"binary_hash", facts.binary_hash},
      {"start_time", start_time},
      {"end_time", std::string()},
      {"experiment_name", facts.experiment_name},
      {"experiment_title", facts.experiment_title},
      {"experiment_toml", facts.experiment_toml},
      {"point_id", facts.point_id},
      {"point_keys", facts.point_keys},
      {"attempt", attempt},
      {"plan_text", facts.plan_text},
      {"cluster_text", facts.cluster_text},
      {"model_name", facts.model_name},
      {"strategy_name", facts.strategy_name},
      {"dtype", facts.dtype},
      {"backend", facts.backend},
      {"simulated", facts.simulated},
      {"num_ranks", facts.num_ranks},
      {"num_nodes", facts.num_nodes},
      {"ranks_per_node", facts.ranks_per_node},
      {"threads_per_rank", facts.threads_per_rank},
      {"host_names", facts.host_names},
      {"device_names", facts.device_names},
      {"topology_address", facts.topology_address},
      {"launcher", facts.launcher},
      {"library_versions", assignments(libraries)},
      {"environment", assignments(facts.environment)},
      {"modules_loaded", facts.modules_loaded},
      {"transport", facts.transport},
      {"progress_mode", facts.progress_mode},
      {"emulated_link_alpha_seconds", facts.emulated_link_alpha_seconds},
      {"emulated_link_bytes_per_second", facts.emulated_link_bytes_per_second},
      {"emulated_inside_alpha_seconds", facts.emulated_inside_alpha_seconds},
      {"emulated_inside_bytes_per_second", facts.emulated_inside_bytes_per_second},
      {"data_description", facts.data_description},
      {"evaluation_data_description", facts.evaluation_data_description},
      {"flop_convention", facts.flop_convention},
      {"sample_unit", facts.sample_unit},
      {"flops_per_sample", facts.flops_per_sample},
      {"num_samples_per_step", facts.num_samples_per_step},
      {"num_sequences_per_step", facts.num_sequences_per_step},
      {"num_parameters", facts.num_parameters},
      {"peak_flops_per_second", facts.peak_flops_per_second},
      {"sustained_flops_per_second", facts.sustained_flops_per_second},
      {"nameplate_flops_per_second", facts.nameplate_flops_per_second},
      {"peak_source", facts.peak_source},
      {"all_reduce_bytes_per_second", facts.all_reduce_bytes_per_second},
      {"memory_cap_bytes", facts.memory_cap_bytes},
      {"block", facts.block},
      {"block_order", facts.block_order},
      {"block_seed", facts.block_seed},
      {"block_job", facts.block_job},
      {"ranks_per_device", facts.ranks_per_device},
      {"max_sm_clock_hertz", facts.max_sm_clock_hertz},
      {"max_memory_clock_hertz", facts.max_memory_clock_hertz},
      {"power_limit_watts", facts.power_limit_watts},
      {"device_choices", assignments(facts.device_choices)},
      {"unmeasured", facts.unmeasured},
      {"restarted_from", facts.restarted_from},
      {"first_step", facts.first_step},
  };
}

Summary summarize(std::span<const StepRow> steps) {
  Summary summary;
  std::vector<double> step;
  std::vector<double> compute;
  std::vector<double> communication;
  std::vector<double> exposed;
  std::array<std::int64_t, num_step_phases> num_steps{};
  for (const StepRow& row : steps) {
    summary.arena_peak_bytes = std::max(summary.arena_peak_bytes, row.arena_peak_bytes);
    summary.outside_arena_peak_bytes = std::max(summary.outside_arena_peak_bytes, row.outside_arena_peak_bytes);
    ++num_steps[static_cast<std::size_t>(row.phase)];
    if (row.phase != StepPhase::measured) continue;
    step.push_back(row.step_seconds_max);
    compute.push_back(row.compute_seconds);
    communication.push_back(row.communication_seconds);
    exposed.push_back(row.exposed_communication_seconds);
  }
  const auto number = [&](StepPhase phase) { return num_steps[static_cast<std::size_t>(phase)]; };
  summary.num_warmup_steps = number(StepPhase::warmup);
  summary.num_measured_steps = number(StepPhase::measured);
  summary.num_fill_steps = number(StepPhase::fill);
  summary.num_drain_steps = number(StepPhase::drain);
  summary.median_step_seconds = median(step);
  summary.median_compute_seconds = median(compute);
  summary.median_communication_seconds = median(communication);
  summary.median_exposed_communication_seconds = median(exposed);
  if (!steps.empty()) {
    summary.first_loss = steps.front().loss;
    summary.last_loss = steps.back().loss;
  }
  return summary;
}

}  // namespace strata::results
