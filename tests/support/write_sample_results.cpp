/// @file
/// Writes two sweeps of made-up attempts with the real recorder, for the tests of analysis/. `sample`: scaling series
/// that ended well, and one point of every kind that needs care (failed, killed, attempted twice, simulated, over an
/// emulated link). `head_to_head`: two strategies in random blocks of one allocation.
///
/// Usage: write_sample_results <results folder>

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "results/recorder.hpp"

namespace {

using namespace strata::results;

struct Point {
  std::string model = "gpt2-small";
  std::string strategy = "ddp";
  std::int64_t num_ranks = 1;
  std::int64_t num_samples_per_step = 4096;
  bool simulated = false;
  bool emulated_link = false;
  std::string dtype = "fp32";
  bool is_image() const { return model == "vgg13"; }
};

AttemptFacts facts_of(const Point& point, int index) {
  AttemptFacts facts;
  facts.creator_version = "0.1.0";
  facts.git_commit = "0123abcd";
  facts.binary_hash = "feedbeef";
  facts.experiment_name = "sample";
  facts.experiment_title = "Sample sweep";
  facts.experiment_toml = fmt::format("name = \"sample\"\n\n[model]\nname = \"{}\"\n", point.model);
  facts.point_id = fmt::format("{:012x}", 0xabc000 + index);
  facts.point_keys = fmt::format(
      "model.name = \"{}\"\nresources.ranks_per_node = {}\nstrategy.name = \"{}\"\ntrain.global_batch = {}\n",
      point.model, point.num_ranks, point.strategy, point.num_samples_per_step);
  if (point.simulated) facts.point_keys = "backend = \"simulated\"\ncluster = \"a800-ib\"\n" + facts.point_keys;
  if (point.emulated_link) facts.point_keys = "communication.emulated_link.alpha_us = 20.0\n" + facts.point_keys;
  facts.plan_text =
      fmt::format("strategy = \"{}\"\nmesh = {{ nodes = 1, ranks_per_node = {} }}\n", point.strategy, point.num_ranks);
  facts.cluster_text = "nodes = 1\n";
  facts.model_name = point.model;
  facts.strategy_name = point.strategy;
  facts.dtype = point.dtype;
  facts.backend = point.simulated ? "simulated" : "cpu";
  facts.simulated = point.simulated;
  facts.num_ranks = point.num_ranks;
  facts.num_nodes = 1;
  facts.ranks_per_node = point.num_ranks;
  facts.threads_per_rank = 1;
  facts.host_names.assign(static_cast<std::size_t>(point.num_ranks), "node-ä");
  facts.device_names.assign(static_cast<std::size_t>(point.num_ranks), "cpu");
  facts.launcher = "mpiexec 4.0.2";
  facts.library_versions = {{"MPI", "MPICH 4.0.2"}, {"oneDNN", "2.6.3"}};
  facts.environment = {{"OMP_NUM_THREADS", "1"}};
  facts.transport = point.num_ranks == 1 ? "none" : "shm";
  facts.progress_mode = "thread";
  if (point.emulated_link) {
    facts.emulated_link_alpha_seconds = 20e-6;
    facts.emulated_link_bytes_per_second = 1.25e8;
  }
  facts.flop_convention = point.is_image() ? "operators" : "megatron";
  facts.sample_unit = point.is_image() ? "image" : "token";
  facts.flops_per_sample = point.is_image() ? 1.5e9 : 7.8e8;
  facts.num_samples_per_step = point.num_samples_per_step;
  facts.num_sequences_per_step = point.is_image() ? point.num_samples_per_step : point.num_samples_per_step / 1024;
  facts.num_parameters = point.is_image() ? 9408586 : 124439808;
  facts.peak_flops_per_second = point.num_ranks == 4 ? 117e9 : 234e9;
  facts.peak_source = "measured GEMM, n = 2048";
  facts.memory_cap_bytes = std::int64_t{4} << 30;
  return facts;
}

StepRow step_of(const Point& point, std::int64_t step) {
  const auto ranks = static_cast<double>(point.num_ranks);
  const auto x = static_cast<double>(step);
  const double rate = point.strategy == "zero3" ? 125e9 : 140e9;
  const double flops = static_cast<double>(point.num_samples_per_step) * (point.is_image() ? 1.5e9 : 7.8e8);
  const double jitter = 1.0 + 0.01 * std::sin(2.0 * x + ranks);
  StepRow row;
  row.step = step;
  row.phase = step < 3 ? StepPhase::warmup : StepPhase::measured;
  row.unix_seconds = 1.8e9 + x;
  row.compute_seconds = jitter * flops / (rate * ranks);
  row.communication_seconds = (ranks > 1 ? 0.4 : 0.0) * (point.emulated_link ? 4.0 : 1.0);
  row.exposed_communication_seconds = 0.3 * row.communication_seconds * jitter;
  row.other_seconds = 0.02 * row.compute_seconds;
  row.input_seconds = 0.001 * row.compute_seconds;
  // It computes longer than the mean of all ranks, and is waited for.
  row.slowest_rank_compute_seconds = row.compute_seconds + 0.5 * row.exposed_communication_seconds;
  row.slowest_rank_exposed_seconds = 0.5 * row.exposed_communication_seconds;
  row.step_seconds_max = row.compute_seconds + row.exposed_communication_seconds + row.other_seconds;
  row.step_seconds_median = 0.99 * row.step_seconds_max;
  row.busy_share = row.compute_seconds / row.step_seconds_max;
  row.loss = 2.2 + 2.0 * std::exp(-0.1 * x) + 0.02 * std::sin(3.0 * x);
  row.learning_rate = 3e-4;
  row.gradient_norm = 1.0 + 1.0 / (1.0 + x);
  row.num_samples = point.num_samples_per_step;
  const std::int64_t parameter_bytes = point.is_image() ? 37634344 : 497759232;
  const bool sharded = point.strategy == "zero3";
  const std::int64_t divisor = sharded ? point.num_ranks : 1;
  const strata::Collective kind = sharded ? strata::Collective::all_gather : strata::Collective::all_reduce;
  row.sent_bytes[static_cast<std::size_t>(kind)] = 2 * parameter_bytes * (point.num_ranks - 1) / point.num_ranks;
  row.parameter_bytes = parameter_bytes / divisor;
  row.gradient_bytes = parameter_bytes / divisor;
  row.optimizer_bytes = 2 * parameter_bytes / divisor;
  row.activation_bytes = (std::int64_t{900} << 20) / point.num_ranks;
  row.workspace_bytes = std::int64_t{64} << 20;
  row.communication_bytes = point.num_ranks > 1 ? std::int64_t{25} << 20 : 0;
  row.arena_peak_bytes = row.parameter_bytes + row.gradient_bytes + row.optimizer_bytes + row.activation_bytes +
                         row.workspace_bytes + row.communication_bytes;
  row.outside_arena_peak_bytes = std::int64_t{5} << 20;
  return row;
}

constexpr std::int64_t num_steps = 33;

void add_rows(Recorder& recorder, const Point& point) {
  for (std::int64_t step = 0; step < num_steps; ++step) {
    recorder.add_step(step_of(point, step));
  }
  std::vector<EventRow> events;
  for (std::int64_t rank = 0; rank < point.num_ranks; ++rank) {
    events.push_back({rank, num_steps - 1, 0, 0, "linear_forward block[0].mlp", 0.0, 0.01, 0, "forward", 0, 0.0});
    events.push_back({rank, num_steps - 1, 1, 1, "all_reduce bucket[0]", 0.01, 0.05, 1 << 20, "reduce", 1, 0.0});
  }
  recorder.add_events(events);
  std::vector<MemoryRow> memory;
  for (std::int64_t rank = 0; rank < point.num_ranks; ++rank) {
    memory.push_back({rank, 0.0, 1 << 20, 0, 2 << 20, 0, 0, 0});
    memory.push_back({rank, 0.01, 1 << 20, 1 << 20, 2 << 20, 3 << 20, 4096, 64});
  }
  recorder.add_memory(memory);
  const double measured = step_of(point, num_steps - 1).step_seconds_max;
  recorder.add_prediction({"step_seconds_max", "s", 0.95 * measured, measured, "simulator"});
}

void write_sweep(const std::string& results) {
  int index = 0;
  const auto open = [&](const Point& point) {
    const AttemptFacts facts = facts_of(point, index++);
    return Recorder(fmt::format("{}/sample/{}", results, facts.point_id), facts);
  };
  const auto write_good = [&](const Point& point) {
    Recorder recorder = open(point);
    add_rows(recorder, point);
    recorder.finish(Status::ok, "", "0000000000c0ffee");
  };
  for (const std::int64_t ranks : {1, 2, 4}) {
    write_good({.num_ranks = ranks});                                                         // strong scaling
    write_good({.model = "vgg13", .num_ranks = ranks, .num_samples_per_step = 128 * ranks});  // weak scaling
  }
  write_good({.strategy = "zero3", .num_ranks = 1});
  write_good({.strategy = "zero3", .num_ranks = 2});
  write_good({.num_ranks = 2, .emulated_link = true});
  write_good({.num_ranks = 4, .emulated_link = true});
  write_good({.num_ranks = 2, .simulated = true});
  write_good({.num_ranks = 4, .simulated = true});

  open({.strategy = "zero3", .num_ranks = 4})
      .finish(Status::oom, "OOM at block[3].mlp.fc1, needs 4.51 GiB of 4.00 GiB");

  {  // killed, and nobody tried again: the .part stays
    const Point point{.strategy = "zero1", .num_ranks = 2};
    Recorder recorder = open(point);
    for (std::int64_t step = 0; step < 10; ++step) {
      recorder.add_step(step_of(point, step));
    }
  }
  {  // a survivor named the failure; the second attempt ended well
    const Point point{.strategy = "zero1", .num_ranks = 4};
    const AttemptFacts facts = facts_of(point, index++);
    const std::string folder = fmt::format("{}/sample/{}", results, facts.point_id);
    std::string status_path;
    {
      Recorder first(folder, facts);
      first.add_step(step_of(point, 0));
      status_path = first.status_path();
    }
    write_status(status_path, Status::node_failure, "rank 0 is gone", 2);
    Recorder second(folder, facts);
    add_rows(second, point);
    second.finish(Status::ok, "", "0000000000c0ffee");
  }
}

/// ddp and zero1 in 8 blocks, each drifting as a shared machine does; zero1 takes 7 % longer, and in block 3 it runs
/// out of memory once and ends well when it is tried again.
void write_head_to_head(const std::string& results) {
  const Point baseline{.num_ranks = 2};
  Point candidate = baseline;
  candidate.strategy = "zero1";
  for (std::int64_t block = 0; block < 8; ++block) {
    const auto x = static_cast<double>(block);
    for (std::int64_t order = 0; order < 2; ++order) {
      const bool is_candidate = (order + block) % 2 == 1;
      AttemptFacts facts = facts_of(is_candidate ? candidate : baseline, is_candidate ? 0x101 : 0x100);
      facts.experiment_name = "head_to_head";
      facts.experiment_title = "Two strategies in blocks";
      facts.block = block;
      facts.block_order = order;
      facts.block_seed = 7;
      facts.block_job = "4711";
      const std::string folder = fmt::format("{}/head_to_head/{}", results, facts.point_id);
      if (is_candidate && block == 3) {
        Recorder(folder, facts).finish(Status::oom, "OOM at block[3].mlp.fc1, needs 4.51 GiB of 4.00 GiB");
      }
      Recorder recorder(folder, facts);
      const double drift = 1.0 + 0.1 * std::sin(x);
      const double noise = 1.0 + 0.004 * std::cos(5.0 * x);
      for (std::int64_t step = 0; step < num_steps; ++step) {
        StepRow row = step_of(is_candidate ? candidate : baseline, step);
        row.step_seconds_max *= is_candidate ? 1.07 * noise * drift : drift;
        recorder.add_step(row);
      }
      recorder.finish(Status::ok, "", "0000000000c0ffee");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_sample_results <results folder>\n");
    return 2;
  }
  try {
    write_sweep(argv[1]);
    write_head_to_head(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_sample_results: %s\n", error.what());
    return 1;
  }
}
