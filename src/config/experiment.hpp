#pragma once

/// @file
/// One experiment: every option that exists, as plain data, equal on every rank. Defaults stand here and nowhere else;
/// the key, the accepted values and the help of each option stand in one table (options.cpp), from which reading,
/// checking, `--help`, the reference text and a point's id follow.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/option_value.hpp"

namespace strata {

/// [model]: a preset or a family, and what differs from it. Unset: as the preset says.
struct ModelSection {
  std::string name;
  std::optional<std::int64_t> layers, hidden, heads, kv_heads, ffn_hidden, vocabulary, sequence_length;
  std::optional<double> dropout;
  std::optional<bool> tied_head;
  std::optional<std::int64_t> image_size, patch_size, num_classes;
  std::vector<std::int64_t> widths;
  bool operator==(const ModelSection&) const = default;
};

struct DataSection {
  std::string format = "auto";
  std::vector<std::string> paths;  ///< as written; see path_beside
  bool end_of_text = false;
  std::int64_t num_samples = 1'000'000;
  bool shuffle = true;
  std::vector<std::string> augment;
  std::int64_t resize = 0;              ///< shorter side of image_folder's images; 0: what the model reads
  std::vector<double> mean, deviation;  ///< of the channels, as fractions of white; empty: the format's
  std::int64_t seed = 1;
  bool operator==(const DataSection&) const = default;
};

struct ResourcesSection {
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::int64_t threads_per_rank = 1;
  std::string device = "cpu";  ///< what a rank computes on: cpu | cuda
  double memory_gib = 0.0;     ///< 0: no cap
  /// Numbers that the nodes have in the cluster, in the launcher's order; empty: 0, 1, …
  std::vector<std::int64_t> allocated_nodes;
  bool operator==(const ResourcesSection&) const = default;
};

/// Samples of a step: a number, or the word "planner", and then the strategy chooses.
struct BatchSize {
  std::int64_t samples = 0;
  bool is_planners = false;
  bool operator==(const BatchSize&) const = default;
  bool is_given() const { return is_planners || samples > 0; }
};

struct TrainSection {
  BatchSize global_batch;                ///< samples a step; 0: global_batch_tokens is given instead
  std::int64_t global_batch_tokens = 0;  ///< tokens a step; 0: global_batch is given instead
  std::int64_t micro_batches = 0;        ///< 0: the planner's
  std::string optimizer = "adamw";
  double learning_rate = 3e-4;
  double momentum = 0.9;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.0;
  double clip_norm = 0.0;  ///< 0: no clipping
  std::string schedule = "constant";
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  std::vector<std::int64_t> decay_epochs;  ///< ascending; empty: decay_steps says when
  double decay_factor = 0.1;
  double min_learning_rate = 0.0;
  std::string dtype = "fp32";
  std::string gradient_dtype = "fp32";
  std::string recompute = "none";
  std::int64_t seed = 1;
  std::int64_t steps = 0;   ///< 0: train.epochs, or the stopping rule of [measure] decides
  std::int64_t epochs = 0;  ///< 0: train.steps, or the stopping rule
  bool operator==(const TrainSection&) const = default;
};

/// [strategy]: a mode and the options it declares for itself. Config knows no mode: whoever does checks `options`.
struct StrategySection {
  std::string name;
  std::map<std::string, OptionValue> options;
  bool operator==(const StrategySection&) const = default;
};

struct OverlapSection {
  double bucket_mib = 25.0;
  double spread_mib = 0.0;
  std::string all_reduce = "backward";
  std::string update = "none";
  std::string layout = "none";
  std::string replica_stream = "shared";
  bool operator==(const OverlapSection&) const = default;
};

struct CommunicationSection {
  std::string transport = "auto";         ///< of collectives on the host
  std::string device_transport = "auto";  ///< of ranks on GPUs: nccl | host | auto
  std::string progress = "automatic";
  double emulated_alpha_us = 0.0;
  double emulated_gbit_per_s = 0.0;  ///< 0: no emulated link
  double emulated_inside_alpha_us = 0.0;
  double emulated_inside_gbit_per_s = 0.0;  ///< 0: no nodes are emulated, all ranks use the one link
  double watchdog_seconds = 60.0;
  bool operator==(const CommunicationSection&) const = default;
};

/// [cpu]: how ranks compute on processors.
struct CpuSection {
  bool winograd = true;
  bool operator==(const CpuSection&) const = default;
};

/// [cuda]: how ranks compute on GPUs.
struct CudaSection {
  std::string graphs = "auto";  ///< auto | on | off
  bool deterministic = false;
  bool tf32 = false;
  std::string attention = "auto";      ///< auto | cudnn | strata
  std::string time_products = "auto";  ///< auto | on | off
  bool timing = false;
  bool operator==(const CudaSection&) const = default;
};

struct MeasureSection {
  std::int64_t warmup_steps = 3;
  std::int64_t min_steps = 8;
  std::int64_t max_steps = 100;
  double stop_when_ci_below = 0.01;
  std::string flops_convention = "auto";
  std::string peak = "thorough";  ///< thorough | quick
  std::int64_t timeline_steps = 3;
  bool operator==(const MeasureSection&) const = default;
};

/// [checkpoint]: what a run leaves for another one to go on from, and where it begins itself.
struct CheckpointSection {
  std::int64_t every = 0;    ///< steps; 0: none is written
  std::int64_t keep = 2;     ///< 0: all
  std::string restart_from;  ///< as written, see path_beside; "latest"; empty: step 0
  bool operator==(const CheckpointSection&) const = default;
};

/// [evaluate]: what is trained, tried on other samples while training goes on behind it.
struct EvaluateSection {
  std::int64_t every = 0;          ///< steps; 0: never
  std::vector<std::string> paths;  ///< as written, see path_beside; of the training data's format
  std::int64_t batch = 0;        ///< samples at a time, over all ranks; 0: a micro-batch of the training, or one a rank
  std::int64_t num_samples = 0;  ///< the first so many; 0: all
  bool operator==(const EvaluateSection&) const = default;
};

/// [planner]: what modes that compare plans compare them by.
struct PlannerSection {
  std::string cost = "analytic";
  bool operator==(const PlannerSection&) const = default;
};

/// [simulate]: how predictions are made, those of `strata simulate` and those beside a run.
struct SimulateSection {
  std::string cost = "analytic";
  std::string profile;  ///< as written; see path_beside
  std::int64_t steps = 1;
  double noise = 0.0;
  std::int64_t seed = 1;
  std::vector<std::int64_t> straggler_ranks;
  double straggler_slowdown = 1.0;
  bool operator==(const SimulateSection&) const = default;
};

/// [job]: how the points go to a scheduler. What a site decides stands in jobscripts/sites.
struct JobSection {
  std::int64_t time_limit_minutes = 30;
  std::string partition;
  std::string constraint;
  std::int64_t max_running = 0;  ///< 0: as many as the cluster takes
  std::int64_t blocks = 0;       ///< 0: every point is a job of its own
  std::int64_t block_seed = 1;
  bool one_launch = false;  ///< strategies of a block follow each other in one process a rank
  bool operator==(const JobSection&) const = default;
};

struct Experiment {
  std::string name;
  std::string title;
  std::string cluster = "this";
  std::vector<std::string> expect;
  ModelSection model;
  DataSection data;
  ResourcesSection resources;
  TrainSection train;
  StrategySection strategy;
  OverlapSection overlap;
  CommunicationSection communication;
  CpuSection cpu;
  CudaSection cuda;
  MeasureSection measure;
  CheckpointSection checkpoint;
  EvaluateSection evaluate;
  PlannerSection planner;
  SimulateSection simulate;
  JobSection job;

  std::string backend = "cpu";  ///< cpu | cuda | simulated: simulated by the verb, else resources.device; no key
  std::map<std::string, std::string> given_at;  ///< key → "file:line" or "--set"; a key that is absent has its default

  std::int64_t num_ranks() const { return resources.nodes * resources.ranks_per_node; }
  /// Whether the ranks of all nodes run on one machine, over emulated links inside nodes and between them.
  bool emulates_nodes() const { return communication.emulated_inside_gbit_per_s > 0.0; }
  /// Nodes of real machines that it runs on, each with as many ranks.
  std::int64_t num_machines() const { return emulates_nodes() ? 1 : resources.nodes; }
  std::int64_t ranks_per_machine() const { return num_ranks() / num_machines(); }
  /// For messages: where @p key was given, or "default".
  std::string where(std::string_view key) const;
};

/// "fp32" → f32, "bf16" → bf16. @throws UserError listing the accepted words.
DType dtype_of_word(std::string_view word);

/// A path of an experiment file is relative to that file, not to the working directory.
std::string path_beside(std::string_view file_name, std::string_view path);

/// What one key holds, in one point: `key = value` lines of TOML, sorted by key.
struct CanonicalKey {
  std::string key;
  std::string value;  ///< TOML spelling
  bool operator==(const CanonicalKey&) const = default;
};

/// Keys that differ from their defaults, without `title`, `expect`, `measure.*`, `checkpoint.*` and `job.*`;
/// `backend` is always among them, and `simulate.*` only where that is simulated.
std::vector<CanonicalKey> canonical_keys(const Experiment& experiment);

/// 12 hex digits of a hash of canonical_keys: an option that is added later leaves it as it is.
std::string point_id(const Experiment& experiment);

/// The whole experiment as a file that reads back to it: every key that was given or differs from its default.
std::string to_text(const Experiment& experiment);

/// Conditions between options: exactly one of global_batch and global_batch_tokens, measured steps in order, a link
/// that is emulated wholly or not at all, transports that the device has, a decay that has an end and one unit. @throws
/// UserError naming the keys, where they were given, and their values.
void verify(const Experiment& experiment);

}  // namespace strata
