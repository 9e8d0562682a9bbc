/// @file
/// Time of AMSP's planner from request to plan: all legal factors of LLaMA-30B on the cluster a800-ib, by its analytic
/// costs. `candidates` are the factors that it costs.
///
///   build/cpu/tests/bench_planners

#include <benchmark/benchmark.h>

#include <fstream>
#include <iterator>

#include "models/model.hpp"
#include "planners/planner.hpp"
#include "planners/sharding/factors.hpp"

namespace strata {
namespace {

Cluster a800_ib() {
  const std::string path = STRATA_SOURCE_DIR "/experiments/clusters/a800-ib.toml";
  std::ifstream stream(path);
  return parse_cluster({std::istreambuf_iterator<char>(stream), {}}, path);
}

void amsp(benchmark::State& state) {
  const Cluster cluster = a800_ib();
  const ModelGraph graph = build_model({.name = "llama-30b"});
  const Planner& planner = find_planner("amsp");
  const int nodes = static_cast<int>(state.range(0)) / 8;
  Plan base;
  base.strategy = "amsp";
  base.mesh.nodes = nodes;
  base.mesh.ranks_per_node = 8;
  base.global_batch = 1024;
  base.schedule.micro_batches = 128 / nodes;
  base.recompute = Recompute::block;
  base.dtypes = {DType::bf16, DType::bf16};
  base.device_capacity_bytes = cluster.device_memory_bytes;
  std::map<std::string, OptionValue> options;
  for (const OptionRow& row : planner.options()) options.emplace(row.name, row.default_value);
  for (auto _ : state) {
    benchmark::DoNotOptimize(planner.plan({.graph = graph, .cluster = cluster, .base = base, .options = options}));
  }
  state.counters["candidates"] = static_cast<double>(legal_states({8, nodes}).size());
}
BENCHMARK(amsp)->Unit(benchmark::kMillisecond)->ArgName("ranks")->Arg(8)->Arg(64)->Arg(1024);

}  // namespace
}  // namespace strata

BENCHMARK_MAIN();
