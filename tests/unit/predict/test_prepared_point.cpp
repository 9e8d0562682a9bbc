/// @file
/// From an experiment to a plan: what is asked reaches the plan, a plan of one's own takes its place, and what cannot
/// be is refused with its numbers.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "config/sweep.hpp"
#include "predict/prediction.hpp"
#include "predict/prepared_point.hpp"
#include "support/refusal.hpp"

namespace strata::predict::test_prepared_point {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* minimal = R"(name = "tiny"
[model]
name = "gpt-nano"
[data]
format = "synthetic"
[train]
global_batch = 8
[strategy]
name = "ddp"
)";

Experiment experiment(const std::vector<std::string>& overrides = {}) {
  return expand(read_experiment(minimal, "e.toml", overrides), "cpu").points.at(0).experiment;
}

TEST(PreparedPoint, DescribedClustersAreFoundFromAnyFolder) {
  const char* elsewhere = "/no/such/folder/e.toml";
  EXPECT_EQ(prepare_point(experiment({"cluster=a800-ib"}), elsewhere).cluster.nodes, 128);
  EXPECT_THAT(words_of<UserError>([&] { prepare_point(experiment({"cluster=a800-bi"}), elsewhere); }),
              AllOf(HasSubstr("cluster = \"a800-bi\": no such description; did you mean \"a800-ib\"?"),
                    HasSubstr("known: a800-ib, ")));
  EXPECT_THAT(words_of<UserError>([&] { prepare_point(experiment({"cluster=mine.toml"}), elsewhere); }),
              HasSubstr("cluster = \"/no/such/folder/mine.toml\": no such file"));
}

/// So that a plan that fits by the account of a described machine of CPUs fits when it runs there.
TEST(PreparedPoint, ADescribedMachineOfCpusHasOurKernelsWorkspaces) {
  const auto point = [&](const char* cluster) {
    return prepare_point(experiment({fmt::format("cluster={}", cluster)}), "/no/such/folder/e.toml");
  };
  const PreparedPoint cpus = point("testbed-200mbit"), gpus = point("a800-ib");
  EXPECT_EQ(lower_uncapped(cpus, 0).arena_bytes, lower_for_run(cpus, 0).arena_bytes);
  EXPECT_LT(lower_uncapped(gpus, 0).arena_bytes, lower_for_run(gpus, 0).arena_bytes);
}

TEST(PreparedPoint, APlanHasWhatARuntimeLeavesOfADevice) {
  const PreparedPoint described = prepare_point(experiment({"cluster=a800-ib"}), "e.toml");
  const Cluster& cluster = described.cluster;
  ASSERT_GT(cluster.runtime_memory_bytes, 0);
  EXPECT_EQ(described.plan.device_capacity_bytes, cluster.device_memory_bytes - cluster.runtime_memory_bytes);
  const PreparedPoint asked = prepare_point(experiment({"cluster=a800-ib", "resources.memory_gib=2"}), "e.toml");
  EXPECT_EQ(asked.plan.device_capacity_bytes, std::int64_t{2} << 30) << "what is asked is of the Program alone";
}

TEST(PreparedPoint, AllocatedNodesHangUnderTheirLeaves) {
  const auto on_nodes = [](const std::string& nodes) {
    return prepare_point(experiment({"cluster=a800-ib", "resources.nodes=4", "resources.ranks_per_node=8",
                                     "train.global_batch=32", "resources.allocated_nodes=" + nodes,
                                     "strategy.name=mics", "strategy.group=8x2", "strategy.placement=leaf-first"}),
                         "e.toml");
  };
  const PreparedPoint scattered = on_nodes("[3, 17, 5, 16]");  // 16 nodes a leaf
  EXPECT_EQ(scattered.leaf_of_node, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(scattered.plan.mesh.node_order, (std::vector<int>{0, 2, 1, 3}));
  EXPECT_TRUE(scattered.leaves_that_matter().empty());  // a spine as fast as its leaves
  EXPECT_EQ(on_nodes("[]").plan.mesh.node_order, (std::vector<int>{0, 1, 2, 3}));
  for (const char* wrong : {"[1, 2, 3]", "[1, 2, 3, 3]", "[1, 2, 3, 128]", "[1, 2, 3, 4294967296]"}) {
    EXPECT_THAT(words_of<UserError>([&] { on_nodes(wrong); }),
                AllOf(HasSubstr("resources.allocated_nodes has "),
                      HasSubstr("accepted: resources.nodes = 4 different ones of the 128 of cluster a800-ib")));
  }
}

TEST(PreparedPoint, WhatIsAskedReachesThePlan) {
  const PreparedPoint point = prepare_point(
      experiment({"resources.ranks_per_node=4", "train.micro_batches=2", "train.recompute=block", "train.dtype=bf16",
                  "train.gradient_dtype=bf16", "train.clip_norm=0.5", "train.optimizer=sgd", "train.momentum=0.25",
                  "train.seed=9", "overlap.bucket_mib=0.5", "overlap.all_reduce=none", "resources.memory_gib=1.5"}),
      "e.toml");
  const Plan& plan = point.plan;
  EXPECT_EQ(plan.strategy, "ddp");
  EXPECT_EQ(plan.mesh.num_ranks(), 4);
  EXPECT_EQ(plan.global_batch, 8);
  EXPECT_EQ(plan.schedule.micro_batches, 2);
  EXPECT_EQ(plan.recompute, Recompute::block);
  EXPECT_EQ(plan.dtypes, (DTypes{DType::bf16, DType::bf16}));
  EXPECT_EQ(plan.optimizer.kind, "sgd");
  EXPECT_EQ(plan.optimizer.momentum, 0.25);
  EXPECT_EQ(plan.optimizer.clip_norm, 0.5);
  EXPECT_EQ(plan.seed, 9U);
  EXPECT_EQ(plan.overlap.bucket_bytes, 1 << 19);
  EXPECT_EQ(plan.overlap.all_reduce, "none");
  EXPECT_EQ(plan.device_capacity_bytes, std::int64_t{3} << 29);
  EXPECT_EQ(point.graph.name, "gpt-nano");
}

TEST(PreparedPoint, ThePlannerChoosesTheBatchWhereItCan) {
  const std::vector<std::string> asked = {"cluster=titan-pcie", "resources.ranks_per_node=4",
                                          "train.global_batch=planner", "resources.memory_gib=0.0625"};
  std::vector<std::string> osdp = asked;
  osdp.insert(osdp.end(), {"strategy.name=osdp-base", "overlap.bucket_mib=0.125"});
  const Plan plan = prepare_point(experiment(osdp), "e.toml").plan;
  EXPECT_GT(plan.global_batch, 4);
  EXPECT_EQ(plan.global_batch % 4, 0);
  EXPECT_LE(plan.why.predicted_peak_bytes, std::int64_t{1} << 26);
  EXPECT_THAT(plan.why.binding, HasSubstr("bytes by the Program"));
  EXPECT_GE(plan.why.frontier.size(), static_cast<std::size_t>(plan.global_batch / 4));
  EXPECT_THAT(words_of<UserError>([&] { prepare_point(experiment(asked), "e.toml"); }),
              HasSubstr("train.global_batch = \"planner\", but strategy ddp does not choose it"));
}

TEST(PreparedPoint, APlannerReadsTheProfileThatTheExperimentNames) {
  const std::vector<std::string> asked = {"strategy.name=amsp", "strategy.cost=measured", "resources.ranks_per_node=2"};
  EXPECT_THAT(words_of<Unsupported>([&] { prepare_point(experiment(asked), "e.toml"); }),
              HasSubstr("cost = \"measured\" needs a profile"));
  CostProfile profile{.machine = machine_identity(experiment(asked))};
  const auto rows = [&](Collective kind, double seconds_per_byte) {
    for (const std::int64_t bytes : {1 << 10, 1 << 24}) {
      const double seconds = seconds_per_byte * static_cast<double>(bytes);
      profile.collectives.push_back({kind, {2, 1}, "shm", bytes, seconds});
    }
  };
  rows(Collective::all_gather, 1e-9);
  rows(Collective::reduce_scatter, 1e-9);
  rows(Collective::all_reduce, 1.0);  // so slow that sharding everything communicates less
  rows(Collective::broadcast, 1e-9);
  profile.kernels.push_back({.kind = "add f32", .sizes = {8}, .work = 8, .ranks_on_node = 2, .seconds = 1e-6});
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "planner_profile.toml";
  std::ofstream(file) << to_text(profile);
  std::vector<std::string> with_profile = asked;
  with_profile.push_back("simulate.profile=" + file.string());
  const Plan plan = prepare_point(experiment(with_profile), "e.toml").plan;
  EXPECT_EQ(plan.operators.at(0).state->p, (Factor{2, 1}));
  std::filesystem::remove(file);
}

TEST(PreparedPoint, OptionsOfAPipelineReachThePlan) {
  const PreparedPoint point =
      prepare_point(experiment({"strategy.name=1f1b", "strategy.stages=2", "strategy.cut_by=operators",
                                "resources.ranks_per_node=4", "train.micro_batches=2"}),
                    "e.toml");
  const std::vector<MeshAxis> axes = {{"stage", 2}, {"data", 2}};
  EXPECT_EQ(point.plan.mesh.axes, axes);
  EXPECT_EQ(point.plan.stages, (Stages{2, "operators"}));
  EXPECT_EQ(point.plan.schedule.kind, ScheduleKind::one_forward_one_backward);
  EXPECT_EQ(point.plan.schedule.micro_batches, 2);
  // gpt-nano has two blocks.
  const Experiment three = experiment({"strategy.name=gpipe", "strategy.stages=3", "resources.ranks_per_node=3"});
  EXPECT_THAT(words_of<Unsupported>([&] { prepare_point(three, "e.toml"); }),
              AllOf(HasSubstr("3 stages on 3 ranks"), HasSubstr("2 blocks")));
  const Experiment uneven = experiment({"strategy.name=gpipe", "strategy.stages=2", "resources.ranks_per_node=3"});
  EXPECT_THAT(words_of<Unsupported>([&] { prepare_point(uneven, "e.toml"); }),
              HasSubstr("3 ranks are not divisible by 2 stages"));
}

TEST(PreparedPoint, PipelinesHaveAsManyStagesAsThereAreBlocksForAndMicroBatchesThatFillThem) {
  const auto plan_of = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"strategy.name=1f1b", "resources.ranks_per_node=4"});
    return prepare_point(experiment(overrides), "e.toml").plan;
  };
  // gpt-nano has two blocks. Where nobody knows seconds, a micro-batch is a sample of each data rank.
  const Plan unknown = plan_of({"train.global_batch=8"});
  EXPECT_EQ(unknown.stages.count, 2);
  EXPECT_EQ(unknown.schedule.micro_batches, 4);
  // Where they are known, more micro-batches are taken only while they gain more than small kernels lose: on a GPU
  // every kernel of so small a model is a launch.
  EXPECT_EQ(plan_of({"train.global_batch=8", "cluster=a800-ib"}).schedule.micro_batches, 1);
  const Plan on_cpus =
      plan_of({"train.global_batch=64", "cluster=testbed-200mbit", "resources.nodes=2", "resources.ranks_per_node=2"});
  EXPECT_GT(on_cpus.schedule.micro_batches, 1);
  EXPECT_EQ(plan_of({"train.global_batch=8", "train.micro_batches=1"}).schedule.micro_batches, 1);
  // One stage has nothing to fill.
  EXPECT_EQ(plan_of({"train.global_batch=8", "strategy.stages=1"}).schedule.micro_batches, 1);
}

TEST(PreparedPoint, CostsOfTheMachineAtHandComeFromWhoeverMeasuredThem) {
  const Experiment megatron = experiment({"strategy.name=megatron", "resources.ranks_per_node=2"});
  EXPECT_THAT(words_of<Unsupported>([&] { prepare_point(megatron, "e.toml"); }),
              AllOf(HasSubstr("intra_node.bandwidth_bytes_per_second"), HasSubstr("`strata run` measures")));
  Cluster measured = machine_at_hand(megatron);
  measured.memory_bandwidth_bytes_per_second = 1e10;
  measured.peak_flops_per_second["f32"] = 1e11;
  measured.intra_node = {1e-5, 1e9};
  const PreparedPoint point = prepare_point(megatron, "e.toml", &measured);
  EXPECT_EQ(point.cluster, measured);
  EXPECT_EQ(point.plan.mesh.num_ranks(), 2);
  // Whoever names a cluster plans for that one.
  EXPECT_EQ(prepare_point(experiment({"cluster=a800-ib"}), "e.toml", &measured).cluster.name, "a800-ib");
}

TEST(PreparedPoint, TokensAreCountedInSequences) {
  // gpt-nano reads 64 tokens a sample.
  const std::vector<std::string> given = {"train.global_batch=0", "train.global_batch_tokens=512"};
  EXPECT_EQ(prepare_point(experiment(given), "e.toml").plan.global_batch, 8);
  const Experiment uneven = experiment({"train.global_batch=0", "train.global_batch_tokens=500"});
  EXPECT_THAT(words_of<UserError>([&] { prepare_point(uneven, "e.toml"); }),
              AllOf(HasSubstr("train.global_batch_tokens = 500"), HasSubstr("sequence length 64")));
}

TEST(PreparedPoint, ABatchThatMicroBatchesDoNotDivide) {
  EXPECT_EQ(prepare_point(experiment({"resources.ranks_per_node=3"}), "e.toml").plan.global_batch, 8);
  const Experiment uneven = experiment({"resources.ranks_per_node=3", "train.micro_batches=3"});
  EXPECT_THAT(words_of<Unsupported>([&] { prepare_point(uneven, "e.toml"); }),
              HasSubstr("ddp on 3 ranks: 8 samples are not divisible by 3 micro-batches"));
}

TEST(PreparedPoint, SingleOnTwoRanksIsRefused) {
  const Experiment two = experiment({"strategy.name=single", "resources.ranks_per_node=2"});
  EXPECT_THAT(words_of<Unsupported>([&] { prepare_point(two, "e.toml"); }), HasSubstr("single"));
}

TEST(PreparedPoint, APrintedPlanComesBack) {
  const Experiment four = experiment({"resources.ranks_per_node=4"});
  const PreparedPoint point = prepare_point(four, "e.toml");
  EXPECT_EQ(prepare_point_with_plan(four, "e.toml", to_text(point.plan), "p.toml").plan, point.plan);
  const Experiment two = experiment({"resources.ranks_per_node=2"});
  EXPECT_THAT(words_of<UserError>([&] { prepare_point_with_plan(two, "e.toml", to_text(point.plan), "p.toml"); }),
              AllOf(HasSubstr("p.toml"), HasSubstr("1 nodes × 4 ranks"), HasSubstr("1 × 2")));
}

TEST(PreparedPoint, AModelThatDoesNotFitTheCap) {
  const PreparedPoint point = prepare_point(experiment({"resources.memory_gib=0.0001"}), "e.toml");
  EXPECT_THAT(words_of<OutOfMemory>([&] { lower_for_run(point, 0); }), HasSubstr("OOM at "));
}

TEST(PreparedPoint, ABatchBeyondAllCounts) {
  for (const char* strategy : {"ddp", "zero3", "amsp", "osdp", "gpipe", "autoddl"}) {
    const Experiment huge = experiment({"train.global_batch=9007199254740992", "resources.ranks_per_node=2",
                                        fmt::format("strategy.name={}", strategy)});
    EXPECT_THAT(words_of<UserError>([&] { prepare_point(huge, "e.toml"); }),
                AllOf(HasSubstr("--set: train.global_batch: 9007199254740992 samples a step"), HasSubstr("at most")));
  }
}

TEST(PreparedPoint, AWrongPlanIsSaidWithItsFile) {
  const Experiment four = experiment({"resources.ranks_per_node=4"});
  std::string text = to_text(prepare_point(four, "e.toml").plan);
  text.replace(text.find("micro_batches = 1"), 17, "micro_batches = 3");
  EXPECT_THAT(words_of<UserError>([&] { prepare_point_with_plan(four, "e.toml", text, "p.toml"); }),
              HasSubstr("p.toml: plan: batch.global: 8 samples are not divisible by 3"));
}

}  // namespace
}  // namespace strata::predict::test_prepared_point
