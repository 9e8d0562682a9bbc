#pragma once

/// @file
/// What is recorded about one attempt, as plain structs: facts known at its start, rows that arrive while it runs.
/// Every member is a dataset or an attribute of results-schema/, under the same name, and a number per collective is
/// one for each kind. An unknown number is NaN, an unknown text is empty; nothing is guessed.

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.hpp"

namespace strata::results {

inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// Facts of the attempt, written as attributes of the file's root before the first step. Rank 0's view.
struct AttemptFacts {
  // Who wrote it.
  std::string creator_version;
  std::string git_commit;   ///< with "-dirty" where the tree was
  std::string binary_hash;  ///< equal on all ranks, checked before measuring

  // What was asked.
  std::string experiment_name;
  std::string experiment_title;
  std::string experiment_toml;
  std::string point_id;    ///< 12 hex digits
  std::string point_keys;  ///< canonical keys of the point, one `key = value` a line
  std::string plan_text;
  std::string cluster_text;
  std::string model_name;
  std::string strategy_name;
  std::string dtype;    ///< of the compute: fp32, bf16
  std::string backend;  ///< cpu, cuda, simulated
  bool simulated = false;

  // Where it ran.
  std::int64_t num_ranks = 0;
  std::int64_t num_nodes = 0;
  std::int64_t ranks_per_node = 0;
  std::int64_t threads_per_rank = 0;
  std::vector<std::string> host_names;    ///< one a rank
  std::vector<std::string> device_names;  ///< one a rank
  std::string topology_address;
  std::string launcher;
  std::map<std::string, std::string> library_versions;
  std::map<std::string, std::string> environment;  ///< the variables that matter
  std::vector<std::string> modules_loaded;
  std::string transport;
  std::string progress_mode;
  double emulated_link_alpha_seconds = unknown;  ///< unknown: the link is real
  double emulated_link_bytes_per_second = unknown;
  double emulated_inside_alpha_seconds = unknown;  ///< unknown: nodes are real
  double emulated_inside_bytes_per_second = unknown;
  std::string data_description;             ///< empty: nothing is read
  std::string evaluation_data_description;  ///< empty: nothing is evaluated

  // What the derived numbers need.
  std::string flop_convention;              ///< megatron, sc21, internevo, palm, torchtitan, operators
  std::string sample_unit;                  ///< "token" or "image": what num_samples_per_step counts
  double flops_per_sample = unknown;        ///< forward and backward of one token or image, by the convention
  std::int64_t num_samples_per_step = 0;    ///< tokens or images, over all ranks
  std::int64_t num_sequences_per_step = 0;  ///< sequences for tokens; equal to num_samples_per_step for images
  std::int64_t num_parameters = 0;
  double peak_flops_per_second = unknown;        ///< of one rank, in `dtype`
  double sustained_flops_per_second = unknown;   ///< of the same products all together
  double nameplate_flops_per_second = unknown;   ///< by the device's data sheet
  std::string peak_source;                       ///< how it was found, e.g. "measured GEMM, n = 2048"
  double all_reduce_bytes_per_second = unknown;  ///< measured bus bandwidth in the same allocation
  std::int64_t memory_cap_bytes = 0;             ///< of one rank; 0: none

  // Its place in a head-to-head job; -1 and empty outside of one.
  std::int64_t block = -1;        ///< from 0; the strategies of one block ran one after the other on the same nodes
  std::int64_t block_order = -1;  ///< place in the block, from 0
  std::int64_t block_seed = -1;   ///< from which the order of every block follows
  std::string block_job;          ///< one id for the allocation

  std::map<std::string, std::string> device_choices;  ///< that the experiment leaves open

  // Its devices' counters.
  std::int64_t ranks_per_device = 0;  ///< 0: the backend has none
  double max_sm_clock_hertz = unknown;
  double max_memory_clock_hertz = unknown;
  double power_limit_watts = unknown;
  std::vector<std::string> unmeasured;  ///< "name: reason"

  // Where it began.
  std::string restarted_from;   ///< the checkpoint; empty: at step 0
  std::int64_t first_step = 0;  ///< number of the first step
};

/// As in the HDF5 enum `step_phase_t`. Of all but those that are measured no statistic of time is made.
enum class StepPhase : std::int8_t {
  warmup = 0,
  measured = 1,
  fill = 2,   ///< where steps overlap: one of the first, or of the first behind a pause, warm-up or not
  drain = 3,  ///< the same of the last, or of the last before a pause
};
inline constexpr int num_step_phases = 4;

std::string_view to_string(StepPhase phase);

/// One training step. Seconds of compute, communication and so on are the maximum over ranks unless said otherwise.
struct StepRow {
  std::int64_t step = 0;
  StepPhase phase = StepPhase::warmup;
  double unix_seconds = unknown;  ///< when the step ended
  double step_seconds_max = unknown;
  double step_seconds_median = unknown;
  double compute_seconds = unknown;
  double communication_seconds = unknown;
  double exposed_communication_seconds = unknown;
  double input_seconds = unknown;  ///< loading samples: waiting until they are read, and copying
  double other_seconds = unknown;  ///< step - compute - exposed communication, of the slowest rank
  /// The other two parts of step_seconds_max.
  double slowest_rank_compute_seconds = unknown, slowest_rank_exposed_seconds = unknown;
  double busy_share = unknown;  ///< of each rank's step that it spends inside kernels, mean over ranks
  double loss = unknown;
  double learning_rate = unknown;
  double gradient_norm = unknown;
  std::int64_t num_samples = 0;  ///< tokens or images
  /// By Collective: bytes that the rank with the most sends in it, counted as elements_sent of base/collective.hpp
  /// says. Each but recv, which sends nothing, is a column of its own, see sent_bytes_column().
  std::array<std::int64_t, num_collectives> sent_bytes{};
  // Live bytes at the moment the arena was fullest, of the rank with the largest peak.
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t activation_bytes = 0;
  std::int64_t workspace_bytes = 0;
  std::int64_t communication_bytes = 0;
  std::int64_t arena_peak_bytes = 0;          ///< touched high-water mark
  std::int64_t outside_arena_peak_bytes = 0;  ///< allocations seen during the step that are not the arena's
  // Of devices that have counters.
  double energy_joules = unknown;
  double power_watts = unknown;
  double sm_clock_hertz = unknown;
  double memory_clock_hertz = unknown;
  double clock_event_reasons = unknown;  ///< a set of bits
  double device_memory_used_bytes = unknown;
  double device_memory_taken_bytes = unknown;
};

/// One instruction of one step on one rank.
struct EventRow {
  std::int64_t rank = 0;
  std::int64_t step = 0;
  std::int64_t stream = 0;
  std::int64_t instruction = 0;  ///< index into the Program's body
  std::string name;
  double begin_seconds = unknown;  ///< since the step's start on the rank's own clock
  double end_seconds = unknown;
  std::int64_t sent_bytes = 0;
  std::string phase;  ///< forward, recompute, backward, reduce, update or metrics
  std::int64_t micro_batch = 0;
  double step_begin_seconds = unknown;  ///< since the first recorded step began on rank 0
};

/// What one rank's arena holds from a moment on: live bytes by category.
struct MemoryRow {
  std::int64_t rank = 0;
  double seconds = unknown;  ///< since the first recorded step began on rank 0
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t activation_bytes = 0;
  std::int64_t workspace_bytes = 0;
  std::int64_t communication_bytes = 0;
};

/// One evaluation of what has been trained, over all of the evaluation's samples.
struct EvaluationRow {
  std::int64_t trained_steps = 0;  ///< those before a restart too
  double epoch = unknown;          ///< of the training samples: trained steps · batch / their number
  double unix_seconds = unknown;   ///< when it ended
  double evaluation_seconds = unknown;
  std::int64_t num_samples = 0;  ///< tokens or images
  double loss = unknown;         ///< mean over samples
  double top_1 = unknown;        ///< share of samples whose target has the largest logit
  double top_5 = unknown;        ///< the same, among the five largest
  std::int64_t arena_bytes = 0;  ///< touched by the evaluation, beside the training's, of the rank with the largest
};

/// One number of the plan or the simulator beside what was measured.
struct PredictionRow {
  std::string metric;  ///< e.g. "step_seconds_max"
  std::string unit;
  double predicted = unknown;
  double measured = unknown;
  std::string source;  ///< which model predicted: "simulator, fitted alpha-beta", "program"
};

}  // namespace strata::results
