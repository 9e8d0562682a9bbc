/// @file
/// Every mode trains on GPUs what it trains on CPUs: same plan, same ranks, same initial values, dropped elements and
/// data. Ranks share the machine's GPUs in turn; their collectives go through the host, or, with the variable
/// STRATA_TRANSPORT=nccl, by NCCL, which needs a GPU for each.

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/cuda/device_info.hpp"
#include "exec/cuda/environment.hpp"
#include "exec/device/attention_choice.hpp"
#include "exec/device/fusions.hpp"
#include "exec/device/workspace.hpp"
#include "ir/program/repetition.hpp"
#include "mpi/exec/laid_out.hpp"
#include "support/simulated_account.hpp"

namespace strata {
namespace {

/// Null: collectives go through the host.
const comm::World* nccl_world = nullptr;

struct GpuOptions {
  cuda::Numerics numerics{.deterministic = true};
  cuda::GraphUse graphs = cuda::GraphUse::automatic;
};

Backend gpu(const GpuOptions& options = {}) {
  return {
      .kernels = {cuda::workspaces_of(options.numerics), cuda::fusions},
      .executor = [options](const Program& program, comm::Engine& engine, InputSource& inputs, std::uint64_t seed) {
        return std::make_unique<cuda::CudaExecutor>(
            program, engine, inputs, seed,
            cuda::CudaOptions{.numerics = options.numerics, .graphs = options.graphs, .nccl = {.world = nccl_world}});
      }};
}

class Modes : public testing::Test {
 protected:
  void SetUp() override {
    const char* const transport = std::getenv("STRATA_TRANSPORT");
    nccl_world = transport != nullptr && std::string(transport) == "nccl" ? &world : nullptr;
    cuda::set_environment(nccl_world != nullptr ? world.size() : 1);
    if (cuda::num_devices() == 0) GTEST_SKIP() << "no GPU";
    cuda::check(cudaSetDevice(world.local_rank() % cuda::num_devices()), "cudaSetDevice");
    std::vector<std::string> devices = world.all_gather(cuda::device_identity());
    std::ranges::sort(devices);
    const bool shared = std::ranges::adjacent_find(devices) != devices.end();
    if (nccl_world != nullptr && shared) GTEST_SKIP() << "no GPU for every rank";
  }
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};

  /// Two nodes where there are four ranks, so that sums have two hops.
  Mesh mesh() const {
    const int nodes = world.size() == 4 ? 2 : 1;
    return {.nodes = nodes, .ranks_per_node = world.size() / nodes, .axes = {}};
  }

  /// A machine that planners can ask about.
  Cluster cluster() const {
    return {.name = "two nodes",
            .nodes = mesh().nodes,
            .devices_per_node = mesh().ranks_per_node,
            .device_memory_bytes = std::int64_t{1} << 33,
            .peak_flops_per_second = {{"f32", 1e13}, {"bf16", 1e14}},
            .memory_bandwidth_bytes_per_second = 1e12,
            .intra_node = {.latency_seconds = 1e-6, .bandwidth_bytes_per_second = 1e11},
            .inter_node = {.latency_seconds = 1e-5, .bandwidth_bytes_per_second = 1e10}};
  }

  /// The plan of @p mode for these ranks, which more micro-batches may suit where one does not; none where it refuses.
  std::optional<Plan> plan_for(Training& training, const std::string& mode) {
    training.cluster = cluster();
    training.nodes = mesh().nodes;
    if (compares_steps(mode)) training.evaluation = simulated_account;
    if (mode == "auto") training.options.insert({{"points", std::int64_t{1}}, {"beam", std::int64_t{1}}});
    for (const int micro_batches : {1, 2, 4}) {
      training.plan.schedule.micro_batches = micro_batches;
      try {
        Plan plan = plan_of(training, mode, world.size());
        lower(plan, training.graph, world.rank(), cpu::workspaces_of({}));
        return plan;
      } catch (const UserError& refusal) {
        refusal_ = refusal.what();
      } catch (const Unsupported& refusal) {
        refusal_ = refusal.what();
      }
    }
    return std::nullopt;
  }
  std::string refusal_;  ///< of plan_for
};

/// By the model's name.
class EveryMode : public Modes, public testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, EveryMode, testing::Values("gpt", "llama", "vgg", "vit", "mlp"),
                         [](const auto& test) { return test.param; });

TEST_P(EveryMode, TrainsWhatItTrainsOnTheCpu) {
  int num_trained = 0;
  for (const RealModel& model : real_models()) {
    if (model.name != GetParam()) continue;
    for (const Planner* planner : all_planners()) {
      Training training = real(model, 24);
      training.steps = 3;
      training.learning_rate = 1e-3;
      training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1, .clip_norm = 1.0};
      const std::optional<Plan> plan = plan_for(training, std::string(planner->name()));
      if (!plan) continue;
      const Trained cpu = train_plan(training, *plan, world, engine);
      training.backend = gpu();
      const Trained ours = train_plan(training, *plan, world, engine);
      const std::string which = std::string(planner->name()) + " of " + model.name;
      ++num_trained;
      EXPECT_EQ(ours.initial.size(), cpu.initial.size()) << which;
      for (const auto& [name, values] : cpu.initial) EXPECT_EQ(ours.initial.at(name), values) << which << " " << name;
      for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
        EXPECT_NEAR(ours.losses[i], cpu.losses[i], 1e-4 * std::abs(cpu.losses[i])) << which << " step " << i;
      }
      for (const auto& [name, values] : cpu.parameters) {
        // Adam divides by what may be rounding alone: a step is as long as the rate whatever its gradient.
        EXPECT_LE(relative_difference(ours.parameters.at(name), values), 2e-2) << which << " " << name;
      }
      EXPECT_EQ(ours.last_step.bytes_sent, cpu.last_step.bytes_sent) << which;
      EXPECT_GT(ours.last_step.compute_seconds, 0.0) << which;
    }
  }
  EXPECT_GE(num_trained, 1);
}

/// A mode and what is asked of it beside its defaults.
struct Asked {
  std::string mode;
  std::map<std::string, std::string> words{};
  std::string to_string() const {
    std::string text = mode;
    for (const auto& [name, word] : words) text += fmt::format(" {}={}", name, word);
    return text;
  }
};

/// What planners would not choose for networks as small as these: weights cut over ranks or into panels.
std::vector<Asked> with_cuts(const Mesh& mesh) {
  const std::string all = to_string(whole_grid(mesh));
  std::vector<Asked> asked = {{"megatron", {{"tensor", all}}},
                              {"decomposed", {{"tensor", all}}},
                              {"autoddl", {{"layout", "1x1," + all + ",1x1"}}},
                              {"autoddl", {{"layout", "1x1,1x1," + all}}},
                              {"summa", {{"rows", all}}},
                              {"summa", {{"rows", "1x1"}}}};
  if (mesh.nodes > 1) {
    const std::string node = fmt::format("{}x1", mesh.ranks_per_node);
    asked.push_back({"megatron", {{"tensor", node}}});
    asked.push_back({"decomposed", {{"tensor", node}}});
    asked.push_back({"autoddl", {{"layout", fmt::format("1x{},{},1x1", mesh.nodes, node)}}});
    asked.push_back({"summa", {{"rows", node}}});
  }
  return asked;
}

/// Codes instead of numbers.
std::vector<Asked> with_codes() {
  std::vector<Asked> asked;
  for (const auto& [weights, gradients] : {std::pair{"int8", "none"}, {"none", "int8"}, {"int8", "int4"}}) {
    asked.push_back({"zeropp", {{"quantized_weights", weights}, {"quantized_gradients", gradients}}});
  }
  return asked;
}

/// Sums of few small numbers: in whatever order they are added, every bit of every weight is the same.
TEST_F(Modes, EveryModeIsEqualBitForBitOnExactInputs) {
  std::vector<Asked> all;
  for (const Planner* planner : all_planners()) all.push_back({std::string(planner->name())});
  if (world.size() > 1) {
    std::ranges::copy(with_cuts(mesh()), std::back_inserter(all));
    std::ranges::copy(with_codes(), std::back_inserter(all));
  }
  // Sizes that ranks do not divide, for those that cut them.
  const std::size_t num_even = all.size();
  if (world.size() > 1) std::ranges::copy(with_cuts(mesh()), std::back_inserter(all));
  std::vector<std::string> refused;
  std::string refusals;
  std::set<Kernel> kernels;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Asked& asked = all[i];
    Training training = i < num_even ? exact(1, {16, 32, 48, 32, 16, 8}) : exact(1, {7, 12, 10, 4});
    training.options.insert(asked.words.begin(), asked.words.end());
    const std::optional<Plan> plan = plan_for(training, asked.mode);
    if (!plan) {
      refused.push_back(asked.to_string());
      refusals += refusal_ + "\n";
      continue;
    }
    const Trained cpu = train_plan(training, *plan, world, engine);
    training.backend = gpu();
    const Trained ours = train_plan(training, *plan, world, engine);
    EXPECT_EQ(ours.parameters, cpu.parameters) << asked.to_string();
    for (const Instruction& in : ours.program.body) kernels.insert(in.kernel);
    const std::vector<std::string> moved = world.all_gather(ours.parameters == ours.initial ? "no" : "yes");
    EXPECT_TRUE(std::ranges::count(moved, "yes") > 0) << asked.to_string();
    EXPECT_FLOAT_EQ(ours.losses.front(), cpu.losses.front()) << asked.to_string();
    EXPECT_EQ(ours.last_step.bytes_sent, cpu.last_step.bytes_sent) << asked.to_string();
  }
  EXPECT_EQ(refused, world.size() == 1 ? std::vector<std::string>{} : std::vector<std::string>{"single"}) << refusals;
}

/// Whole tensors that are broadcast, and even parts that are gathered, under the next step.
std::vector<Asked> with_late_broadcasts(const Mesh& mesh) {
  std::vector<Asked> asked;
  for (const char* sharding : {"inter_tensor", "intra_tensor"}) {
    asked.push_back({"amsp",
                     {{"p", "1x1"},
                      {"g", "1x1"},
                      {"os", to_string(whole_grid(mesh))},
                      {"sharding", sharding},
                      {"broadcast", "next_forward"}}});
  }
  return asked;
}

TEST_F(Modes, LateBroadcastsAreEqualBitForBitOnExactInputs) {
  if (world.size() == 1) GTEST_SKIP() << "one rank has all updates";
  for (const Asked& asked : with_late_broadcasts(mesh())) {
    Training training = exact(1, {16, 32, 48, 32, 16, 8});
    training.options.insert(asked.words.begin(), asked.words.end());
    const std::optional<Plan> plan = plan_for(training, asked.mode);
    ASSERT_TRUE(plan) << refusal_;
    const Trained cpu = train_plan(training, *plan, world, engine);
    EXPECT_EQ(depth(cpu.program), 1);
    training.backend = gpu();
    const Trained ours = train_plan(training, *plan, world, engine);
    EXPECT_EQ(ours.parameters, cpu.parameters) << asked.to_string();
    EXPECT_EQ(ours.last_step.bytes_sent, cpu.last_step.bytes_sent) << asked.to_string();
    EXPECT_GT(ours.last_step.compute_seconds, 0.0) << asked.to_string();
    EXPECT_FLOAT_EQ(ours.losses.front(), cpu.losses.front()) << asked.to_string();
  }
}

/// Over steps that overlap: random numbers, factors of Adam, losses and norms are those of each step's own.
TEST_F(Modes, LateBroadcastsChangeNoBit) {
  if (world.size() == 1) GTEST_SKIP() << "one rank has all updates";
  for (const Asked& asked : with_late_broadcasts(mesh())) {
    RealModel model = transformer("gpt");
    model.options.layers = 1;
    model.options.heads = 4;
    model.options.sequence_length = 5;
    Training training = real(model, 8);
    training.vocabulary = 120;
    training.steps = 4;
    training.learning_rate = 1e-2;
    training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1, .clip_norm = 1.0};
    training.options.insert(asked.words.begin(), asked.words.end());
    const std::optional<Plan> late = plan_for(training, asked.mode);
    ASSERT_TRUE(late) << refusal_;
    Plan plain = *late;
    plain.overlap.broadcast = "none";
    training.backend = gpu();
    const Trained reference = train_plan(training, plain, world, engine);
    const Trained ours = train_plan(training, *late, world, engine);
    EXPECT_EQ(depth(ours.program), 1);
    EXPECT_EQ(ours.parameters, reference.parameters) << asked.to_string();
    EXPECT_EQ(ours.losses, reference.losses) << asked.to_string();
    EXPECT_EQ(ours.norms, reference.norms) << asked.to_string();
    EXPECT_NE(ours.parameters, ours.initial) << asked.to_string();
    training.backend = {};
    const Trained cpu = train_plan(training, *late, world, engine);
    ASSERT_EQ(ours.losses.size(), cpu.losses.size());
    for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_NEAR(ours.losses[i], cpu.losses[i], 1e-4 * std::abs(cpu.losses[i])) << asked.to_string() << " step " << i;
      EXPECT_NEAR(ours.norms[i], cpu.norms[i], 1e-3 * std::abs(cpu.norms[i])) << asked.to_string() << " step " << i;
    }
  }
}

TEST_F(Modes, TransformersInPartsAreTheCpus) {
  if (world.size() == 1) GTEST_SKIP() << "one rank holds all parts";
  std::set<Kernel> kernels;
  bool splits_dropout = false;
  for (const char* name : {"gpt", "llama"}) {
    for (const Asked& asked : with_cuts(mesh())) {
      RealModel model = transformer(name);
      model.options.layers = 1;
      model.options.heads = 4;
      model.options.sequence_length = 5;
      Training training = real(model, 8);
      training.vocabulary = 120;
      training.options.insert(asked.words.begin(), asked.words.end());
      training.learning_rate = 4096.0;  // see GradientsAreTheCpus
      const std::optional<Plan> planned = plan_for(training, asked.mode);
      ASSERT_TRUE(planned) << name << " " << asked.to_string() << ": " << refusal_;
      const Plan& plan = *planned;
      const Trained cpu = train_plan(training, plan, world, engine);
      training.backend = gpu();
      const Trained ours = train_plan(training, plan, world, engine);
      for (const auto& [parameter, values] : cpu.parameters) {
        EXPECT_LE(relative_difference(ours.parameters.at(parameter), values), 1e-4)
            << name << " " << asked.to_string() << " " << parameter;
      }
      for (const Instruction& in : ours.program.body) {
        kernels.insert(in.kernel);
        splits_dropout |= in.kernel == Kernel::dropout_backward && in.attributes.has("run");
      }
    }
  }
  for (const Kernel kernel :
       {Kernel::permute, Kernel::norm_partial, Kernel::norm_apply, Kernel::norm_backward_partial,
        Kernel::norm_backward_apply, Kernel::cross_entropy_partial, Kernel::cross_entropy_apply}) {
    EXPECT_TRUE(kernels.contains(kernel)) << kernel_signature(kernel).name;
  }
  EXPECT_TRUE(splits_dropout);
}

TEST_F(Modes, GradientsAreTheCpus) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24);
    // So large a rate that the gradient outweighs the weight: what is compared is the gradient.
    training.learning_rate = 4096.0;
    const Plan plan = plan_of(training, world.size() == 1 ? "single" : "ddp", world.size());
    const Trained cpu = train_plan(training, plan, world, engine);
    training.backend = gpu();
    const Trained ours = train_plan(training, plan, world, engine);
    for (const auto& [name, values] : cpu.parameters) {
      EXPECT_LE(relative_difference(ours.parameters.at(name), values), 1e-4) << model.name << " " << name;
    }
  }
}

TEST_F(Modes, DeterministicStepsAreEqualBitForBit) {
  Training training = real(real_models().front(), 24);
  training.backend = gpu();
  training.steps = 3;
  const Plan plan = plan_of(training, world.size() == 1 ? "single" : "ddp", world.size());
  const Trained first = train_plan(training, plan, world, engine);
  const Trained second = train_plan(training, plan, world, engine);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.parameters, second.parameters);
}

/// The first step is issued, the others are launches of its graph; collectives on the host are never in one.
TEST_F(Modes, GraphsGiveTheBitsOfSingleKernels) {
  std::vector<Asked> all;
  for (const Planner* planner : all_planners()) all.push_back({std::string(planner->name())});
  if (world.size() > 1) std::ranges::copy(with_cuts(mesh()), std::back_inserter(all));
  int num_graphs = 0;
  for (const Asked& asked : all) {
    Training training = exact(1, {16, 24, 16, 8});
    training.options.insert(asked.words.begin(), asked.words.end());
    training.steps = 4;
    training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1, .clip_norm = 1.0};
    const std::optional<Plan> plan = plan_for(training, asked.mode);
    if (!plan) continue;
    const auto where = nccl_world != nullptr ? CollectivesOn::device : CollectivesOn::host;
    const Program program = lower(*plan, training.graph, world.rank(), {cuda::workspaces_of({}), cuda::fusions});
    // The host's engine is called by all ranks or by none.
    const std::string recorded = uses_graph(program, where, cuda::GraphUse::automatic) ? "yes" : "no";
    const std::vector<std::string> of_ranks = world.all_gather(recorded);
    const auto num_graph_ranks = std::ranges::count(of_ranks, "yes");
    if (nccl_world != nullptr) {
      // All or none: those whose stages, or whose ranks on a ring, send each other messages.
      EXPECT_TRUE(num_graph_ranks == 0 || num_graph_ranks == world.size()) << asked.to_string();
      const bool sends = std::ranges::any_of(program.body, [](const Instruction& in) {
        return in.is_collective() && (in.collective == Collective::send || in.collective == Collective::recv);
      });
      EXPECT_EQ(num_graph_ranks == 0, sends) << asked.to_string();
      EXPECT_TRUE(sends || plan->stages.count == 1) << asked.to_string();
    }
    if (num_graph_ranks != world.size()) continue;
    ++num_graphs;
    training.backend = gpu({.graphs = cuda::GraphUse::off});
    const Trained kernels = train_plan(training, *plan, world, engine);
    training.backend = gpu({.graphs = cuda::GraphUse::on});
    const Trained graphs = train_plan(training, *plan, world, engine);
    EXPECT_EQ(graphs.losses, kernels.losses) << asked.to_string();
    EXPECT_EQ(graphs.parameters, kernels.parameters) << asked.to_string();
    EXPECT_NE(graphs.parameters, graphs.initial) << asked.to_string();
    EXPECT_EQ(graphs.last_step.bytes_sent, kernels.last_step.bytes_sent) << asked.to_string();
    EXPECT_GT(graphs.last_step.compute_seconds, 0.0) << asked.to_string();
  }
  EXPECT_EQ(num_graphs > 0, world.size() == 1 || nccl_world != nullptr);
}

TEST_F(Modes, GraphsReadTheStepsOwnNumbers) {
  if (world.size() > 1 && nccl_world == nullptr) GTEST_SKIP() << "collectives on the host";
  for (const RealModel& model : real_models()) {
    if (!model.options.dropout) continue;
    Training training = real(model, 4);
    training.steps = 3;
    const Plan plan = plan_of(training, world.size() == 1 ? "single" : "ddp", world.size());
    training.backend = gpu({.graphs = cuda::GraphUse::off});
    const Trained kernels = train_plan(training, plan, world, engine);
    training.backend = gpu({.graphs = cuda::GraphUse::on});
    const Trained graphs = train_plan(training, plan, world, engine);
    EXPECT_EQ(graphs.losses, kernels.losses) << model.name;
    EXPECT_EQ(graphs.parameters, kernels.parameters) << model.name;
  }
}

TEST_F(Modes, GraphsWithCollectivesOnTheHostAreRefused) {
  if (world.size() == 1 || nccl_world != nullptr) GTEST_SKIP() << "no collectives on the host";
  Training training = exact(1, {16, 32, 8});
  const Plan plan = plan_of(training, "ddp", world.size());
  training.backend = gpu({.graphs = cuda::GraphUse::on});
  try {
    train_plan(training, plan, world, engine);
    FAIL() << "not refused";
  } catch (const Unsupported& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("cuda.graphs"), std::string::npos) << refusal.what();
  }
}

/// One rank has key heads that serve two query heads each; several ranks split the heads.
TEST_F(Modes, FusedAttentionFollowsTheCpu) {
  const cuda::Numerics numerics{.deterministic = true, .attention = cuda::AttentionKernels::cudnn};
  RealModel model = transformer("llama");
  model.options.layers = 1;
  model.options.hidden = 64;
  model.options.heads = 8;
  model.options.kv_heads = world.size() == 1 ? 4 : 8;
  model.options.dropout = 0.1;
  Training training = real(model, 8);
  training.vocabulary = 120;
  training.plan.dtypes = {DType::bf16, DType::bf16};
  training.steps = 3;
  training.learning_rate = 1e-2;
  if (world.size() > 1) training.options.insert({"tensor", to_string(whole_grid(mesh()))});
  const std::optional<Plan> planned = plan_for(training, world.size() == 1 ? "single" : "megatron");
  ASSERT_TRUE(planned) << refusal_;
  const Plan& plan = *planned;
  const Trained cpu = train_plan(training, plan, world, engine);
  training.backend = gpu({.numerics = numerics});
  const Trained ours = train_plan(training, plan, world, engine);
  EXPECT_EQ(cuda::attention_of(ours.program, numerics), "cudnn");
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(ours.losses[i], cpu.losses[i], 2e-2 * std::abs(cpu.losses[i])) << "step " << i;
  }
  const Trained again = train_plan(training, plan, world, engine);
  EXPECT_EQ(again.losses, ours.losses);
  EXPECT_EQ(again.parameters, ours.parameters);
}

TEST_F(Modes, Bf16FollowsTheCpu) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24);
    training.plan.dtypes = {DType::bf16, DType::bf16};
    training.steps = 3;
    training.learning_rate = 1e-2;
    const Plan plan = plan_of(training, world.size() == 1 ? "single" : "ddp", world.size());
    const Trained cpu = train_plan(training, plan, world, engine);
    training.backend = gpu();
    const Trained ours = train_plan(training, plan, world, engine);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_NEAR(ours.losses[i], cpu.losses[i], 2e-2 * std::abs(cpu.losses[i])) << model.name << " step " << i;
    }
  }
}

}  // namespace
}  // namespace strata
