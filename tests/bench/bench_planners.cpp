/// @file
/// Time from request to plan. AMSP: all legal factors of LLaMA-7B, 13B and 30B on the cluster a800-ib, by its analytic
/// costs, memory from Programs; `candidates` are the factors that it costs.
/// OSDP: minGPT on the cluster titan-pcie, 4 slices, all batch sizes that
/// fit 16 GB; `operators` as in table 1, `batches` for which something fits.
///
/// AutoDDL: the exact search for its figure 8's network, and for a transformer of d = 8192 whose layers are free, one
/// device a node (daint-p100), and eight (a800-ib); `seconds` is the communication that the plan predicts.
///
///   build/cpu/tests/bench_planners

#include <benchmark/benchmark.h>

#include <fstream>
#include <iterator>

#include "config/sweep.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "planners/states/factors.hpp"
#include "predict/plan_evaluation.hpp"

namespace strata {
namespace {

Cluster cluster(const char* name) {
  const std::string path = std::string(STRATA_SOURCE_DIR "/experiments/clusters/") + name + ".toml";
  std::ifstream stream(path);
  return parse_cluster({std::istreambuf_iterator<char>(stream), {}}, path);
}

void amsp(benchmark::State& state, const char* model) {
  const Cluster a800 = cluster("a800-ib");
  const ModelGraph graph = build_model({.name = model});
  const Planner& planner = find_planner("amsp");
  const int nodes = static_cast<int>(state.range(0)) / 8;
  Plan base;
  base.strategy = "amsp";
  base.mesh.nodes = nodes;
  base.mesh.ranks_per_node = 8;
  base.global_batch = 1024;
  base.schedule.micro_batches = 128 / nodes;
  base.recompute = std::string_view(model) == "llama-30b" ? Recompute::block : Recompute::none;
  base.dtypes = {DType::bf16, DType::bf16};
  base.device_capacity_bytes = a800.device_memory_bytes;
  std::map<std::string, OptionValue> options;
  for (const OptionRow& row : planner.options()) options.emplace(row.name, row.default_value);
  const std::string point = std::string(R"(name = "planned"
cluster = "a800-ib"
[model]
name = ")") + model + R"("
[data]
format = "synthetic"
[resources]
ranks_per_node = 8
[train]
global_batch = 8
[strategy]
name = "ddp"
)";
  const std::string file = STRATA_SOURCE_DIR "/planned.toml";  // there is none: nothing beside it is read
  const predict::PlanEvaluation evaluate(
      predict::prepare_point(expand(read_experiment(point, file, {}), "simulated").points.at(0).experiment, file),
      file);
  const PlanRequest request{.graph = graph, .cluster = a800, .base = base, .options = options, .evaluate = &evaluate};
  for (auto _ : state) {
    benchmark::DoNotOptimize(planner.plan(request));
  }
  state.counters["candidates"] = static_cast<double>(legal_states({8, nodes}).size());
}
BENCHMARK_CAPTURE(amsp, llama_7b, "llama-7b")->Unit(benchmark::kMillisecond)->ArgName("ranks")->Arg(8)->Arg(1024);
BENCHMARK_CAPTURE(amsp, llama_13b, "llama-13b")->Unit(benchmark::kMillisecond)->ArgName("ranks")->Arg(8)->Arg(1024);
BENCHMARK_CAPTURE(amsp, llama_30b, "llama-30b")
    ->Unit(benchmark::kMillisecond)
    ->ArgName("ranks")
    ->Arg(8)
    ->Arg(64)
    ->Arg(1024);

void osdp(benchmark::State& state, const char* model, Recompute recompute) {
  const Cluster titans = cluster("titan-pcie");
  const ModelGraph graph = build_model({.name = model});
  const Planner& planner = find_planner("osdp");
  Plan base;
  base.strategy = "osdp";
  base.mesh.ranks_per_node = 8;
  base.global_batch = 0;
  base.recompute = recompute;
  base.device_capacity_bytes = std::int64_t{16} << 30;
  std::map<std::string, OptionValue> options;
  for (const OptionRow& row : planner.options()) options.emplace(row.name, row.default_value);
  Plan plan;
  for (auto _ : state) {
    plan = planner.plan({.graph = graph, .cluster = titans, .base = base, .options = options});
  }
  state.counters["operators"] = static_cast<double>(2 * graph.blocks.size() + 2);
  state.counters["batches"] = static_cast<double>(plan.why.frontier.size());
}
BENCHMARK_CAPTURE(osdp, nd_98, "mingpt-nd-48x1024", Recompute::none)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(osdp, nd_194, "mingpt-nd-96x1024", Recompute::none)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(osdp, nd_194_recomputed, "mingpt-nd-96x1024", Recompute::block)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(osdp, ic_194, "mingpt-ic-96", Recompute::none)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(osdp, ic_194_recomputed, "mingpt-ic-96", Recompute::block)->Unit(benchmark::kMillisecond);

void autoddl(benchmark::State& state, const char* cluster_name, const ModelGraph& graph, std::int64_t batch) {
  Cluster machine = cluster(cluster_name);
  const Planner& planner = find_planner("autoddl");
  Plan base;
  base.strategy = "autoddl";
  base.mesh.ranks_per_node = machine.devices_per_node;
  base.mesh.nodes = static_cast<int>(state.range(0));
  base.global_batch = batch;
  std::map<std::string, OptionValue> options;
  for (const OptionRow& row : planner.options()) options.emplace(row.name, row.default_value);
  options["repeated_layers"] = std::string("free");
  Plan plan;
  for (auto _ : state) {
    plan = planner.plan({.graph = graph, .cluster = machine, .base = base, .options = options});
  }
  state.counters["seconds"] = plan.why.predicted_seconds;
}
void autoddl_mlp(benchmark::State& state) { autoddl(state, "daint-p100", build_model({.name = "autoddl-mlp"}), 8192); }
BENCHMARK(autoddl_mlp)->Unit(benchmark::kMillisecond)->ArgName("nodes")->Arg(128)->Arg(4096);

void autoddl_transformer(benchmark::State& state, const char* cluster_name) {
  ModelOptions options{.name = "gpt"};
  options.layers = 44;
  options.hidden = 8192;
  options.heads = 64;
  options.vocabulary = 51200;
  options.sequence_length = 1024;
  autoddl(state, cluster_name, build_model(options), 1024);
}
BENCHMARK_CAPTURE(autoddl_transformer, single_gpu_nodes, "daint-p100")
    ->Unit(benchmark::kMillisecond)
    ->ArgName("nodes")
    ->Arg(64)
    ->Arg(256)
    ->Arg(1024);
BENCHMARK_CAPTURE(autoddl_transformer, nodes_of_eight, "a800-ib")
    ->Unit(benchmark::kMillisecond)
    ->ArgName("nodes")
    ->Arg(4)
    ->Arg(32);

}  // namespace
}  // namespace strata

BENCHMARK_MAIN();
