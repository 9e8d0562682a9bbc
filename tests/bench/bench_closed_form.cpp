/// @file
/// Closed-form estimates of training iterations a second and core, over a search space as a planner walks it: every
/// split of 512 ranks into tensor, data and pipeline parallelism at each micro-batch, on the cluster a100-vtrain with
/// all its measured ratios. `items_per_second` is estimates a second.
///
///   build/cpu/tests/bench_closed_form

#include <benchmark/benchmark.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "base/error.hpp"
#include "cost/transformer_iteration.hpp"

namespace strata {
namespace {

Cluster a100_vtrain() {
  const std::string path = STRATA_SOURCE_DIR "/experiments/clusters/a100-vtrain.toml";
  std::ifstream stream(path);
  Cluster cluster = parse_cluster({std::istreambuf_iterator<char>(stream), {}}, path);
  verify(cluster);
  return cluster;
}

/// Runs that verify accepts, of a model of h = 8192 with 64 heads and 48 layers, 1536 sequences of 2048 tokens a step.
std::vector<TransformerRun> splits_of_512_ranks() {
  std::vector<TransformerRun> runs;
  for (const Recomputation recomputation : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    for (std::int64_t tensor = 1; tensor <= 16; tensor *= 2) {
      for (std::int64_t pipeline = 1; pipeline <= 16; pipeline *= 2) {
        for (std::int64_t micro_batch = 1; micro_batch <= 32; ++micro_batch) {
          TransformerRun run{.hidden_size = 8192,
                             .attention_heads = 64,
                             .layers = 48,
                             .sequence_length = 2048,
                             .vocabulary_size = 51200,
                             .global_batch = 1536,
                             .micro_batch = micro_batch,
                             .tensor = tensor,
                             .data = 512 / tensor / pipeline,
                             .pipeline = pipeline,
                             .recomputation = recomputation};
          try {
            verify(run);
          } catch (const UserError&) {
            continue;  // a micro-batch that does not divide
          }
          runs.push_back(run);
        }
      }
    }
  }
  return runs;
}

void iteration_estimates(benchmark::State& state) {
  const Cluster cluster = a100_vtrain();
  const std::vector<TransformerRun> runs = splits_of_512_ranks();
  for (auto _ : state) {
    for (const TransformerRun& run : runs) {
      benchmark::DoNotOptimize(transformer_iteration(run, cluster));
      benchmark::DoNotOptimize(first_stage_activation_bytes(run));
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(runs.size()));
  state.counters["splits"] = static_cast<double>(runs.size());
}
BENCHMARK(iteration_estimates)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace strata

BENCHMARK_MAIN();
