/// @file
/// Time from request to plan. AMSP: all legal factors of LLaMA-7B, 13B and 30B on the cluster a800-ib, by its analytic
/// costs, memory from Programs; `candidates` are the factors that it costs.
/// OSDP: minGPT on the cluster titan-pcie, 4 slices, all batch sizes that
/// fit 16 GB; `operators` as in table 1, `batches` for which something fits.
///
/// AutoDDL: the exact search for its figure 8's network, and for a transformer of d = 8192 whose layers are free, one
/// device a node (daint-p100), and eight (a800-ib); `seconds` is the communication that the plan predicts.
///
/// Oases: the chain alone, of made-up numbers without two nodes alike, and from request to plan, with the Programs that
/// are asked and those that are simulated to the end, for models of its table 4 on the cluster rtx3090-pcie.
///
/// CDP: the period of a ring; and from request to plan, GPT-2 small with a head of its own cut at operators, on nodes
/// of eight A100: `fresh` reads of `reads`, `seconds` a step, and what the planner says is left open.
///
///   build/cpu/tests/bench_planners

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "config/sweep.hpp"
#include "models/model.hpp"
#include "planners/cyclic/ring_period.hpp"
#include "planners/oases/chain_search.hpp"
#include "planners/planner.hpp"
#include "planners/states/factors.hpp"
#include "predict/plan_evaluation.hpp"
#include "support/random_chains.hpp"

namespace strata {
namespace {

constexpr const char* no_file = STRATA_SOURCE_DIR "/planned.toml";  // there is none: nothing beside it is read

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
  const predict::PlanEvaluation evaluate(
      predict::prepare_point(expand(read_experiment(point, no_file, {}), "simulated").points.at(0).experiment, no_file),
      no_file);
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

void oases_chain(benchmark::State& state) {
  std::mt19937 generator(9);
  std::vector<Chain> chains;
  while (chains.size() < 64) {
    Chain chain = random_chain(generator, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
    if (chain.capacity_bytes > 0 && search_exactly(chain).fits()) chains.push_back(std::move(chain));
  }
  std::size_t next = 0;
  for (auto _ : state) benchmark::DoNotOptimize(search_exactly(chains[next++ % chains.size()]));
}
BENCHMARK(oases_chain)->Unit(benchmark::kMillisecond)->ArgNames({"nodes", "degrees"})->Args({48, 6})->Args({192, 8});

Experiment oases_experiment(std::string_view model, std::int64_t batch, std::int64_t micro_batches) {
  const std::string point = fmt::format(R"(name = "planned"
cluster = "rtx3090-pcie"
[model]
name = "{}"
[data]
format = "synthetic"
[resources]
nodes = 8
ranks_per_node = 4
[train]
dtype = "fp32"
global_batch = {}
micro_batches = {}
[strategy]
name = "oases"
)",
                                        model, batch, micro_batches);
  return expand(read_experiment(point, no_file, {}), "simulated").points.at(0).experiment;
}

void oases(benchmark::State& state, const char* model, int samples) {
  const Experiment experiment = oases_experiment(model, samples * state.range(0), state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(predict::prepare_point(experiment, no_file));
}
BENCHMARK_CAPTURE(oases, 2048, "oases-2048", 128)
    ->Unit(benchmark::kMillisecond)
    ->ArgName("micro_batches")
    ->Arg(1)
    ->Arg(20);
BENCHMARK_CAPTURE(oases, 4096, "oases-4096", 32)
    ->Unit(benchmark::kMillisecond)
    ->ArgName("micro_batches")
    ->Arg(1)
    ->Arg(20);
BENCHMARK_CAPTURE(oases, 8192, "oases-8192", 16)
    ->Unit(benchmark::kMillisecond)
    ->ArgName("micro_batches")
    ->Arg(1)
    ->Arg(20);

void oases_program(benchmark::State& state) {
  const Experiment experiment = oases_experiment("oases-2048", 128, 1);
  for (auto _ : state) benchmark::DoNotOptimize(predict::linear_program(experiment, no_file));
}
BENCHMARK(oases_program)->Unit(benchmark::kMillisecond);

/// As many stages as micro-batches, each unlike the others.
void ring(benchmark::State& state) {
  const auto n = static_cast<int>(state.range(0));
  const Schedule schedule{.kind = ScheduleKind::cyclic, .micro_batches = n, .fresh = "v2"};
  std::vector<StageSeconds> stages;
  for (int j = 0; j < n; ++j) {
    const double uneven = 1.0 + 0.01 * (j * 7 % 11);
    stages.push_back(
        {.forward = uneven, .backward = 2.0 * uneven, .update = 0.1, .sum = 0.3 * uneven, .parameters = 0.3 * uneven});
  }
  for (auto _ : state) benchmark::DoNotOptimize(ring_period(schedule, stages));
}
BENCHMARK(ring)->Unit(benchmark::kMillisecond)->ArgName("micro_batches")->Arg(8)->Arg(32);

/// A rank a micro-batch, as many stages as ranks, cut at operators.
void cyclic(benchmark::State& state) {
  const std::int64_t ranks = state.range(0);
  const std::string point = fmt::format(R"(name = "planned"
cluster = "{}"
[model]
name = "gpt2-small"
tied_head = false
[data]
format = "synthetic"
[resources]
nodes = {}
ranks_per_node = {}
[train]
dtype = "bf16"
global_batch = {}
micro_batches = {}
clip_norm = 0.0
[strategy]
name = "cdp-v2"
fresh = "planner"
cut_at = "operator"
)",
                                        ranks > 16 ? "a100-vtrain" : "a100-2x8", ranks > 8 ? ranks / 8 : 1,
                                        ranks > 8 ? 8 : ranks, 4 * ranks, ranks);
  const Experiment experiment = expand(read_experiment(point, no_file, {}), "simulated").points.at(0).experiment;
  Plan plan;
  for (auto _ : state) plan = predict::prepare_point(experiment, no_file).plan;
  state.counters["fresh"] = static_cast<double>(std::ranges::count(plan.schedule.fresh, '1'));
  state.counters["reads"] = static_cast<double>(ranks * ranks);
  state.counters["seconds"] = plan.why.predicted_seconds;
  state.SetLabel(plan.why.binding);
}
BENCHMARK(cyclic)->Unit(benchmark::kMillisecond)->ArgName("ranks")->Arg(3)->Arg(4)->Arg(8)->Arg(32);

}  // namespace
}  // namespace strata

BENCHMARK_MAIN();
