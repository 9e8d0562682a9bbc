#pragma once

/// @file
/// A made-up attempt for the tests of this folder, with a value of its own in every member.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "results/columns.hpp"
#include "results/rows.hpp"

namespace strata::results::test {

/// A folder that disappears with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-results-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      std::abort();
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline AttemptFacts sample_facts() {
  AttemptFacts facts;
  facts.creator_version = "0.1.0";
  facts.git_commit = "0123abcd";
  facts.binary_hash = "feed";
  facts.experiment_name = "unit";
  facts.experiment_title = "Ünïcode title";
  facts.experiment_toml = std::string(100000, '#');  // larger than HDF5's limit of 64 KiB for values held in place
  facts.point_id = "0123456789ab";
  facts.point_keys = "model.name = \"gpt2-small\"";
  facts.plan_text = "schedule = \"simultaneous\"";
  facts.cluster_text = "nodes = 1";
  facts.model_name = "gpt2-small";
  facts.strategy_name = "ddp";
  facts.dtype = "fp32";
  facts.backend = "cpu";
  facts.num_ranks = 2;
  facts.num_nodes = 1;
  facts.ranks_per_node = 2;
  facts.threads_per_rank = 1;
  facts.host_names = {"alpha", "alpha"};
  facts.device_names = {"cpu a", "cpu b"};
  facts.launcher = "mpiexec";
  facts.library_versions = {{"MPI", "MPICH 4.0.2"}};
  facts.environment = {{"OMP_NUM_THREADS", "1"}};
  facts.transport = "shm";
  facts.progress_mode = "thread";
  facts.data_description = "text: 12 samples";
  facts.evaluation_data_description = "text: 3 samples";
  facts.flop_convention = "megatron";
  facts.sample_unit = "token";
  facts.flops_per_sample = 7.75e8;
  facts.num_samples_per_step = 4096;
  facts.num_sequences_per_step = 4;
  facts.num_parameters = 124439808;
  facts.peak_flops_per_second = 2.3e11;
  facts.sustained_flops_per_second = 2.1e11;
  facts.nameplate_flops_per_second = 3e11;
  facts.peak_source = "measured GEMM, n = 2048";
  facts.memory_cap_bytes = std::int64_t{8} << 30;
  facts.block = 3;
  facts.block_order = 1;
  facts.block_seed = 42;
  facts.block_job = "4711";
  facts.ranks_per_device = 2;
  facts.max_sm_clock_hertz = 1.98e9;
  facts.max_memory_clock_hertz = 3.2e9;
  facts.device_choices = {{"graphs", "yes"}};
  facts.power_limit_watts = 700.0;
  facts.unmeasured = {"energy_joules: Not Supported"};
  facts.restarted_from = "results/unit/0123456789ab/checkpoints/step_40.h5";
  facts.first_step = 40;
  return facts;
}

/// Numbers that differ by column and by step.
inline StepRow sample_step(std::int64_t step) {
  const auto x = static_cast<double>(step);
  StepRow row;
  row.step = step;
  row.phase = step < 2 ? StepPhase::warmup : StepPhase::measured;
  row.unix_seconds = 1.7e9 + x;
  row.step_seconds_max = 0.5 + 0.001 * x;
  row.step_seconds_median = 0.4 + 0.001 * x;
  row.compute_seconds = 0.3 + 0.001 * x;
  row.communication_seconds = 0.2 + 0.001 * x;
  row.exposed_communication_seconds = 0.1 + 0.001 * x;
  row.other_seconds = 0.01 + 0.001 * x;
  row.input_seconds = 0.002 + 0.001 * x;
  row.slowest_rank_compute_seconds = 0.2 + 0.001 * x;
  row.slowest_rank_exposed_seconds = 0.05 + 0.001 * x;
  row.busy_share = 0.6 + 0.001 * x;
  row.loss = 4.0 - 0.01 * x;
  row.learning_rate = 3e-4;
  row.num_samples = 4096;
  for (const Collective kind : sending_collectives) {
    row.sent_bytes[static_cast<std::size_t>(kind)] = 1000 * (1 + static_cast<std::int64_t>(kind)) + step;
  }
  row.parameter_bytes = 10;
  row.gradient_bytes = 20;
  row.optimizer_bytes = 30;
  row.activation_bytes = 40;
  row.workspace_bytes = 50;
  row.communication_bytes = 60;
  row.arena_peak_bytes = 220 + step;
  row.outside_arena_peak_bytes = 7;
  row.energy_joules = 100.0 + x;
  row.power_watts = 600.0 + x;
  row.sm_clock_hertz = 1.7e9 + x;
  row.memory_clock_hertz = 3.1e9 + x;
  row.clock_event_reasons = 4.0 + x;
  row.device_memory_used_bytes = 1e9 + x;
  row.device_memory_taken_bytes = 5e8 + x;
  return row;
}

}  // namespace strata::results::test
