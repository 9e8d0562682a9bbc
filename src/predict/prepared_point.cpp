#include "predict/prepared_point.hpp"

#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/read_file.hpp"
#include "config/cluster_files.hpp"
#include "cost/flops_convention.hpp"
#include "exec/cpu/kernel_library.hpp"
#include "exec/cuda_backend.hpp"
#include "exec/device/fusions.hpp"
#include "exec/device/workspace.hpp"
#include "ir/model/batch_limit.hpp"
#include "lower/evaluation.hpp"
#include "lower/lower.hpp"
#include "models/model.hpp"
#include "planners/pipelines/micro_batches.hpp"
#include "planners/planner.hpp"
#include "predict/cluster_folders.hpp"
#include "predict/device_options.hpp"
#include "predict/plan_evaluation.hpp"
#include "predict/prediction.hpp"
#include "predict/strategy_options.hpp"

namespace strata::predict {

bool is_on_gpus(const Experiment& experiment) { return experiment.resources.device == "cuda"; }

ModelGraph model_of(const Experiment& experiment) {
  const ModelSection& m = experiment.model;
  ModelOptions options;
  options.name = m.name;
  options.layers = m.layers;
  options.hidden = m.hidden;
  options.heads = m.heads;
  options.kv_heads = m.kv_heads;
  options.ffn_hidden = m.ffn_hidden;
  options.vocabulary = m.vocabulary;
  options.sequence_length = m.sequence_length;
  options.dropout = m.dropout;
  options.tied_head = m.tied_head;
  options.image_size = m.image_size;
  options.patch_size = m.patch_size;
  options.num_classes = m.num_classes;
  options.widths = m.widths;
  ModelGraph graph = build_model(options);
  verify(graph);
  return graph;
}

std::int64_t global_batch_samples(const Experiment& experiment, const ModelGraph& graph) {
  const TrainSection& train = experiment.train;
  if (train.global_batch_tokens == 0) {
    return train.global_batch.samples;
  }
  if (train.global_batch_tokens % graph.positions_per_sample != 0) {
    throw UserError(fmt::format("{}: train.global_batch_tokens = {} is no multiple of the sequence length {}",
                                experiment.where("train.global_batch_tokens"), train.global_batch_tokens,
                                graph.positions_per_sample));
  }
  return train.global_batch_tokens / graph.positions_per_sample;
}

Cluster machine_at_hand(const Experiment& experiment) {
  Cluster cluster;
  cluster.name = "this";
  cluster.description = "the machine strata runs on";
  cluster.nodes = static_cast<int>(experiment.resources.nodes);
  cluster.devices_per_node = static_cast<int>(experiment.resources.ranks_per_node);
  if (is_on_gpus(experiment)) {
    const cuda::Device gpu = cuda::first_device();
    cluster.device = gpu.name;
    cluster.device_memory_bytes = gpu.memory_bytes;
    return cluster;
  }
  cluster.device = "cpu";
  cluster.device_memory_bytes = host_memory_bytes();
  return cluster;
}

namespace {

/// Where products of fp32 are made on tensor cores, their peak is that of tf32.
void multiply_at_tf32(Cluster& cluster, const Experiment& experiment) {
  const auto peak = cluster.peak_flops_per_second.find("tf32");
  if (peak == cluster.peak_flops_per_second.end()) {
    throw UserError(fmt::format("{}: cuda.tf32 = true, and cluster {} has no peak_flops_per_second.tf32",
                                experiment.where("cuda.tf32"), cluster.name));
  }
  cluster.peak_flops_per_second["f32"] = peak->second;
  cluster.effective_flops_per_second.erase("f32");
  const auto effective = cluster.effective_flops_per_second.find("tf32");
  if (effective != cluster.effective_flops_per_second.end()) {
    cluster.effective_flops_per_second["f32"] = effective->second;
  }
}

}  // namespace

Cluster cluster_of(const Experiment& experiment, const std::string& experiment_file, const Cluster* machine) {
  if (experiment.cluster == "this") return machine != nullptr ? *machine : machine_at_hand(experiment);
  const bool is_path = experiment.cluster.ends_with(".toml");
  Cluster cluster = find_cluster(is_path ? path_beside(experiment_file, experiment.cluster) : experiment.cluster,
                                 cluster_folders(std::filesystem::absolute(experiment_file).parent_path()),
                                 experiment.where("cluster") + ": cluster");
  if (experiment.cuda.tf32) multiply_at_tf32(cluster, experiment);
  return cluster;
}

namespace {

/// Modes count elements and bytes of a step's activations before a plan is there to be verified.
/// @throws UserError where 64 bits have no room for these.
void check_batch_size(const Experiment& experiment, const ModelGraph& graph, std::int64_t samples) {
  const auto [elements_per_sample, most_samples] = batch_limit(graph);
  if (static_cast<double>(samples) <= most_samples) return;
  const std::string_view key =
      experiment.train.global_batch_tokens > 0 ? "train.global_batch_tokens" : "train.global_batch";
  throw UserError(
      fmt::format("{}: {}: {} samples a step, each with {:.3g} elements of activations; accepted: {:.0f} "
                  "samples of this model at most",
                  experiment.where(key), key, samples, elements_per_sample, most_samples));
}

/// @throws UserError where the experiment asks for what excludes each other.
void check_updates(const Experiment& experiment) {
  if (experiment.overlap.update != "backward" || experiment.train.clip_norm == 0.0) return;
  throw UserError(fmt::format(
      "{}: overlap.update = backward: train.clip_norm = {} needs the norm of all gradients, which is known behind the "
      "last backward; accepted: none, or train.clip_norm = 0",
      experiment.where("overlap.update"), experiment.train.clip_norm));
}

/// What the experiment asks for, before a mode decides anything.
Plan base_plan(const Experiment& experiment, const ModelGraph& graph, const Cluster& cluster) {
  const TrainSection& train = experiment.train;
  Plan plan;
  plan.strategy = experiment.strategy.name;
  plan.mesh.nodes = static_cast<int>(experiment.resources.nodes);
  plan.mesh.ranks_per_node = static_cast<int>(experiment.resources.ranks_per_node);
  plan.global_batch = global_batch_samples(experiment, graph);
  check_batch_size(experiment, graph, plan.global_batch);
  if (train.micro_batches > 0) plan.schedule.micro_batches = static_cast<int>(train.micro_batches);
  plan.recompute = parse_recompute(train.recompute);
  const auto bytes_of_mib = [](double mib) { return static_cast<std::int64_t>(std::llround(mib * 1024.0 * 1024.0)); };
  plan.overlap.bucket_bytes = bytes_of_mib(experiment.overlap.bucket_mib);
  plan.overlap.spread_bytes = bytes_of_mib(experiment.overlap.spread_mib);
  plan.overlap.all_reduce = experiment.overlap.all_reduce;
  check_updates(experiment);
  plan.overlap.update = experiment.overlap.update;
  plan.overlap.layout = experiment.overlap.layout;
  plan.overlap.replica_stream = experiment.overlap.replica_stream;
  plan.optimizer.kind = train.optimizer;
  plan.optimizer.momentum = train.momentum;
  plan.optimizer.beta1 = train.beta1;
  plan.optimizer.beta2 = train.beta2;
  plan.optimizer.epsilon = train.epsilon;
  plan.optimizer.weight_decay = train.weight_decay;
  plan.optimizer.clip_norm = train.clip_norm;
  plan.dtypes.compute = dtype_of_word(train.dtype);
  plan.dtypes.gradient = dtype_of_word(train.gradient_dtype);
  plan.device_capacity_bytes =
      static_cast<std::int64_t>(std::llround(experiment.resources.memory_gib * 1024.0 * 1024.0 * 1024.0));
  // A described device has the memory it has; this machine's is shared with others and capped only where asked.
  if (plan.device_capacity_bytes == 0 && cluster.name != "this") {
    plan.device_capacity_bytes = cluster.device_memory_bytes - cluster.runtime_memory_bytes;
  }
  plan.seed = static_cast<std::uint64_t>(train.seed);
  return plan;
}

/// A point asks for ranks that the cluster must have.
void check_fits(const Experiment& experiment, const Cluster& cluster) {
  const ResourcesSection& r = experiment.resources;
  if (r.nodes > cluster.nodes || r.ranks_per_node > cluster.devices_per_node) {
    throw UserError(fmt::format("{}: {} nodes × {} ranks on cluster {}, which has {} × {}",
                                experiment.where("resources.ranks_per_node"), r.nodes, r.ranks_per_node, cluster.name,
                                cluster.nodes, cluster.devices_per_node));
  }
}

/// Of the job's nodes, in the launcher's order. @throws UserError where they are not that many of the cluster's.
std::vector<int> leaf_of_node(const Experiment& experiment, const Cluster& cluster) {
  const ResourcesSection& r = experiment.resources;
  std::vector<int> nodes(static_cast<std::size_t>(r.nodes));
  std::iota(nodes.begin(), nodes.end(), 0);
  if (!r.allocated_nodes.empty()) {
    const std::vector<std::int64_t>& asked = r.allocated_nodes;
    const std::set<std::int64_t> different(asked.begin(), asked.end());
    if (static_cast<std::int64_t>(asked.size()) != r.nodes || different.size() != asked.size() ||
        *different.rbegin() >= cluster.nodes) {
      throw UserError(
          fmt::format("{}: resources.allocated_nodes has {} nodes, {} of them different and the last {}; "
                      "accepted: resources.nodes = {} different ones of the {} of cluster {}",
                      experiment.where("resources.allocated_nodes"), asked.size(), different.size(),
                      *different.rbegin(), r.nodes, cluster.nodes, cluster.name));
    }
    std::ranges::transform(asked, nodes.begin(), [](std::int64_t node) { return static_cast<int>(node); });
  }
  return leaves_of(cluster, nodes);
}

PreparedPoint without_plan(const Experiment& experiment, const std::string& experiment_file, const Cluster* machine) {
  PreparedPoint point{.experiment = experiment,
                      .graph = model_of(experiment),
                      .cluster = cluster_of(experiment, experiment_file, machine),
                      .plan = {}};
  check_fits(experiment, point.cluster);
  point.leaf_of_node = leaf_of_node(experiment, point.cluster);
  return point;
}

/// All of @p point, @p experiment, @p experiment_file and @p evaluate outlive it.
PlanRequest request_of(const PreparedPoint& point, const Experiment& experiment, const std::string& experiment_file,
                       const PlanEvaluation& evaluate) {
  PlanRequest request{.graph = point.graph,
                      .cluster = point.cluster,
                      .base = base_plan(experiment, point.graph, point.cluster),
                      .options = complete_strategy_options(experiment),
                      .leaf_of_node = point.leaf_of_node,
                      .evaluate = &evaluate};
  if (!experiment.simulate.profile.empty()) {
    request.measured_costs = [&] { return profiled_costs(experiment, experiment_file); };
    request.measured_links = [&] { return profiled_links(experiment, experiment_file); };
  }
  return request;
}

}  // namespace

PreparedPoint prepare_point(const Experiment& experiment, const std::string& experiment_file, const Cluster* machine,
                            int num_threads) {
  PreparedPoint point = without_plan(experiment, experiment_file, machine);
  const Planner& planner = find_planner(experiment.strategy.name);
  if (experiment.train.global_batch.is_planners && !planner.chooses_batch()) {
    throw UserError(
        fmt::format("{}: train.global_batch = \"planner\", but strategy {} does not choose it: a number of samples "
                    "is accepted",
                    experiment.where("train.global_batch"), planner.name()));
  }
  const PlanEvaluation evaluate(point, experiment_file);
  PlanRequest request = request_of(point, experiment, experiment_file, evaluate);
  request.num_threads = num_threads;
  point.plan = experiment.train.micro_batches > 0 ? planner.plan(request) : plan_with_micro_batches(planner, request);
  verify(point.plan, point.graph);
  return point;
}

std::string linear_program(const Experiment& experiment, const std::string& experiment_file) {
  const PreparedPoint point = without_plan(experiment, experiment_file, nullptr);
  const PlanEvaluation evaluate(point, experiment_file);
  PlanRequest request = request_of(point, experiment, experiment_file, evaluate);
  request.base.schedule.micro_batches = std::max(1, request.base.schedule.micro_batches);
  return find_planner(experiment.strategy.name).linear_program(request);
}

PreparedPoint prepare_point_with_plan(const Experiment& experiment, const std::string& experiment_file,
                                      const std::string& plan_text, const std::string& plan_file,
                                      const Cluster* machine) {
  PreparedPoint point = without_plan(experiment, experiment_file, machine);
  point.plan = parse_plan(plan_text, plan_file);
  try {
    verify(point.plan, point.graph);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", plan_file, error.what()));
  }
  const Mesh& mesh = point.plan.mesh;
  if (mesh.nodes != experiment.resources.nodes || mesh.ranks_per_node != experiment.resources.ranks_per_node) {
    throw UserError(fmt::format("{}: a plan for {} nodes × {} ranks, but the experiment has {} × {}", plan_file,
                                mesh.nodes, mesh.ranks_per_node, experiment.resources.nodes,
                                experiment.resources.ranks_per_node));
  }
  return point;
}

PreparedPoint prepare_point(const Experiment& experiment, const std::string& experiment_file,
                            const std::string& plan_file, const Cluster* machine, int num_threads) {
  if (plan_file.empty()) return prepare_point(experiment, experiment_file, machine, num_threads);
  return prepare_point_with_plan(experiment, experiment_file, read_file(plan_file), plan_file, machine);
}

namespace {

/// Of the kernels that this program runs.
KernelTraits own_kernels(const PreparedPoint& point) {
  if (is_on_gpus(point.experiment)) return {cuda::workspaces_of(numerics_of(point.experiment)), cuda::fusions};
  // Workspaces of the library depend on the number of threads that will call it.
  omp_set_num_threads(static_cast<int>(point.experiment.resources.threads_per_rank));
  return cpu::workspaces_of(cpu_numerics_of(point.experiment));
}

}  // namespace

KernelTraits kernels_of(const PreparedPoint& point) {
  const bool is_own = computes_on_cpus(point.cluster) || is_on_gpus(point.experiment);
  KernelTraits kernels =
      is_own ? own_kernels(point) : KernelTraits([](const Program&, const Instruction&) { return std::int64_t{0}; });
  kernels.verifies = point.verifies_programs;
  kernels.assigns_addresses = point.assigns_addresses;
  return kernels;
}

Program lower_for_run(const PreparedPoint& point, int rank) {
  Program program = lower(point.plan, point.graph, rank, own_kernels(point));
  check_capacity(program, point.plan.device_capacity_bytes);
  return program;
}

std::int64_t evaluation_batch(const PreparedPoint& point) {
  const Plan& plan = point.plan;
  const std::int64_t asked = point.experiment.evaluate.batch;
  return asked > 0 ? asked
                   : std::max<std::int64_t>(plan.global_batch / plan.schedule.micro_batches, plan.mesh.num_ranks());
}

namespace {

LoweredEvaluation lower_evaluation_with(const PreparedPoint& point, int rank, std::int64_t training_bytes,
                                        const KernelTraits& kernels) {
  LoweredEvaluation lowered{.graph = evaluation_graph(point.graph), .batch = evaluation_batch(point), .program = {}};
  lowered.program = lower_evaluation(evaluation_plan(point.plan, lowered.batch), lowered.graph, rank, kernels);
  const std::int64_t needed = lowered.program.arena_bytes, capacity = point.plan.device_capacity_bytes;
  if (capacity > 0 && training_bytes + needed > capacity) {
    throw OutOfMemory(
        fmt::format("rank {}: evaluation of {} samples at a time needs {} bytes beside the {} of the training, more "
                    "than the {} that there are; evaluate.batch says how many",
                    rank, lowered.batch, needed, training_bytes, capacity));
  }
  return lowered;
}

}  // namespace

LoweredEvaluation lower_evaluation_for_run(const PreparedPoint& point, int rank, std::int64_t training_bytes) {
  return lower_evaluation_with(point, rank, training_bytes, own_kernels(point));
}

LoweredEvaluation lower_evaluation_for_cluster(const PreparedPoint& point, int rank, std::int64_t training_bytes) {
  return lower_evaluation_with(point, rank, training_bytes, kernels_of(point));
}

Program lower_uncapped(const PreparedPoint& point, int rank) {
  return lower(point.plan, point.graph, rank, kernels_of(point));
}

Program lower_for_cluster(const PreparedPoint& point, int rank) {
  Program program = lower_uncapped(point, rank);
  check_capacity(program, point.plan.device_capacity_bytes);
  return program;
}

CountedFlops counted_flops(const Experiment& experiment, const ModelGraph& graph) {
  const FlopsConvention convention = experiment.measure.flops_convention == "auto"
                                         ? default_flops_convention(graph)
                                         : parse_flops_convention(experiment.measure.flops_convention);
  return {std::string(to_string(convention)),
          training_flops_per_position(graph, convention, experiment.train.recompute == "block")};
}

}  // namespace strata::predict
