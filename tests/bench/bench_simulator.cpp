/// @file
/// Simulated events a second, and how long LLaMA-30B over 1024 ranks takes to lower and simulate, folded: one step of
/// `ddp` and of `1f1b` with 8 stages, analytic costs. Then the same step, already lowered; and what it takes to find,
/// lower and verify the classes of `zero3` over up to 131,072 ranks.
///
///   build/cpu/tests/bench_simulator

#include <benchmark/benchmark.h>

#include <map>
#include <string>

#include "cost/cost_model.hpp"
#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "sim/simulate.hpp"

namespace strata {
namespace {

Cluster described() {
  Cluster cluster;
  cluster.name = "bench";
  cluster.nodes = 128;
  cluster.devices_per_node = 8;
  cluster.peak_flops_per_second = {{"f32", 2e13}, {"bf16", 3e14}};
  cluster.memory_bandwidth_bytes_per_second = 2e12;
  cluster.intra_node = {4e-6, 2e11};
  cluster.inter_node = {1.4e-5, 2.5e10};
  cluster.nics_per_node = 4;
  return cluster;
}

/// @param samples_per_micro_batch over all ranks.
Plan planned(const std::string& mode, const ModelGraph& graph, const Cluster& cluster, int micro_batches,
             std::int64_t samples_per_micro_batch = 1024) {
  Plan base;
  base.strategy = mode;
  base.mesh.nodes = cluster.nodes;
  base.mesh.ranks_per_node = cluster.devices_per_node;
  base.schedule.micro_batches = micro_batches;
  base.global_batch = samples_per_micro_batch * micro_batches;
  base.dtypes.compute = DType::bf16;
  base.recompute = Recompute::block;
  const Planner& planner = find_planner(mode);
  std::map<std::string, OptionValue> options;
  for (const OptionRow& row : planner.options()) {
    options.emplace(row.name, row.name == "stages" ? OptionValue(std::int64_t{8}) : row.default_value);
  }
  return planner.plan({.graph = graph, .cluster = cluster, .base = base, .options = options});
}

struct Lowered {
  std::vector<Program> programs;
  Job job;
};

Lowered lowered(const Plan& plan, const ModelGraph& graph) {
  Lowered result;
  RankClasses classes = rank_classes(plan, graph);
  for (const int rank : classes.representatives) {
    result.programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return 0; }));
  }
  result.job = {.programs = {}, .class_of_rank = classes.class_of_rank, .ranks_per_node = plan.mesh.ranks_per_node};
  for (const Program& program : result.programs) result.job.programs.push_back(&program);
  return result;
}

void lower_and_simulate(benchmark::State& state, const std::string& mode) {
  const ModelGraph graph = build_model({.name = "llama-30b", .sequence_length = 4096});
  const Cluster cluster = described();
  const auto costs = analytic_costs(cluster);
  for (auto _ : state) {
    const Lowered all = lowered(planned(mode, graph, cluster, 1), graph);
    benchmark::DoNotOptimize(simulate(all.job, *costs, {.keeps_events = false}));
  }
}
BENCHMARK_CAPTURE(lower_and_simulate, ddp, "ddp")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lower_and_simulate, m_1f1b, "1f1b")->Unit(benchmark::kMillisecond);

/// Finding, lowering and verifying the classes of `zero3`, by nodes of 8 ranks. States are sharded over all ranks, so
/// that every group is as large as the job: what should grow with the number of classes shows here if it grows with the
/// ranks instead.
void lower_classes(benchmark::State& state) {
  const ModelGraph graph = build_model({.name = "llama-30b", .sequence_length = 4096});
  Cluster cluster = described();
  cluster.nodes = static_cast<int>(state.range(0));
  const std::int64_t one_a_rank = std::int64_t{cluster.nodes} * cluster.devices_per_node;
  const Plan plan = planned("zero3", graph, cluster, 1, one_a_rank);
  std::size_t num_classes = 0;
  for (auto _ : state) {
    const Lowered all = lowered(plan, graph);
    num_classes = all.programs.size();
    benchmark::DoNotOptimize(all.programs.data());
  }
  state.counters["ranks"] = plan.mesh.num_ranks();
  state.counters["classes"] = static_cast<double>(num_classes);
}
BENCHMARK(lower_classes)->Arg(128)->Arg(2048)->Arg(16384)->Unit(benchmark::kMillisecond);

/// Steps of the same job one after the other: lowering and compiling are paid once, events are what is left.
void events(benchmark::State& state, const std::string& mode) {
  const ModelGraph graph = build_model({.name = "llama-30b", .sequence_length = 4096});
  const Cluster cluster = described();
  const auto costs = analytic_costs(cluster);
  const Lowered all = lowered(planned(mode, graph, cluster, 16), graph);
  std::int64_t num_events = 0;
  for (auto _ : state) {
    num_events += simulate(all.job, *costs, {.num_steps = 100, .keeps_events = false}).num_events;
  }
  state.SetItemsProcessed(num_events);
}
BENCHMARK_CAPTURE(events, ddp, "ddp")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(events, m_1f1b, "1f1b")->Unit(benchmark::kMillisecond);

/// One step that is already lowered, with what simulate() prepares once: nodes of 8 ranks, micro-batches.
void one_step(benchmark::State& state, const std::string& mode) {
  const ModelGraph graph = build_model({.name = "llama-30b", .sequence_length = 4096});
  Cluster cluster = described();
  cluster.nodes = static_cast<int>(state.range(0));
  const auto costs = analytic_costs(cluster);
  const Lowered all = lowered(planned(mode, graph, cluster, static_cast<int>(state.range(1))), graph);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(all.job, *costs, {.keeps_events = false}));
  state.SetItemsProcessed(state.iterations());
}

void sizes(benchmark::internal::Benchmark* b) {
  for (const int nodes : {2, 16, 128}) {
    for (const int micro_batches : {1, 16}) b->Args({nodes, micro_batches});
  }
  b->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(one_step, ddp, "ddp")->Apply(sizes);
BENCHMARK_CAPTURE(one_step, gpipe, "gpipe")->Apply(sizes);
BENCHMARK_CAPTURE(one_step, m_1f1b, "1f1b")->Apply(sizes);

}  // namespace
}  // namespace strata

BENCHMARK_MAIN();
