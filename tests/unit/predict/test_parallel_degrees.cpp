/// @file
/// The search of `3d` on described clusters: what it takes is the fastest of every combination of data, tensor and
/// stage degrees that fits, each of them made, lowered and simulated here; what a combination takes and holds at least
/// is never more than it is simulated to take and to hold; and few are asked of the simulator.

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/sweep.hpp"
#include "planners/pipelines/passes_in_turn.hpp"
#include "planners/pipelines/step_bound.hpp"
#include "predict/plan_evaluation.hpp"
#include "predict/prepared_point.hpp"
#include "support/deep.hpp"
#include "support/refusal.hpp"
#include "unit/predict/counted_evaluation.hpp"

namespace strata::predict::test_parallel_degrees {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Options = std::map<std::string, OptionValue>;

constexpr const char* file = "/no/such/folder/e.toml";
constexpr const char* small_gpt = R"(name = "degrees"
cluster = "a800-ib"
[model]
name = "gpt"
layers = 8
hidden = 1024
heads = 16
vocabulary = 8192
sequence_length = 512
[data]
format = "synthetic"
[resources]
nodes = 1
ranks_per_node = 8
[train]
global_batch = 128
micro_batches = 8
dtype = "bf16"
[strategy]
name = "3d"
)";

/// Blocks of two widths.
constexpr const char* uneven_gpt = R"(name = "degrees"
cluster = "a800-ib"
[model]
name = "mingpt-ic-24"
sequence_length = 128
[data]
format = "synthetic"
[resources]
nodes = 1
ranks_per_node = 8
[train]
global_batch = 32
micro_batches = 2
dtype = "bf16"
[strategy]
name = "3d"
)";

Experiment experiment(const std::vector<std::string>& overrides, const char* text = small_gpt) {
  return expand(read_experiment(text, "e.toml", overrides), "simulated").points.at(0).experiment;
}

struct Combination {
  ParallelDegrees degrees;
  double seconds = 0.0;
  std::int64_t peak_bytes = 0;
};

/// A model on a machine, and what the mode is asked there.
class Setting {
 public:
  explicit Setting(const std::vector<std::string>& words, const char* text = small_gpt)
      : experiment_(experiment(words, text)) {
    Experiment alone = experiment_;
    alone.strategy = {.name = "ddp"};
    point_ = prepare_point(alone, file);
    base_ = point_.plan;
    base_.strategy = "3d";
    base_.mesh.axes.clear();
    base_.operators.clear();
  }

  PlanRequest request(const Options& given, const Evaluate* evaluate) const {
    PlanRequest request{.graph = point_.graph, .cluster = point_.cluster, .base = base_, .options = given};
    for (const OptionRow& row : find_planner("3d").options()) {
      request.options.try_emplace(std::string(row.name), row.default_value);
    }
    request.evaluate = evaluate;
    return request;
  }
  Plan search(const Options& given, std::int64_t capacity, const Evaluate& evaluate) const {
    PlanRequest asked = request(given, &evaluate);
    asked.base.device_capacity_bytes = capacity;
    return find_planner("3d").plan(asked);
  }

  /// The mode has nothing to choose.
  Plan plan_of(const ParallelDegrees& degrees) const {
    PlanRequest fixed = request({{"stages", std::int64_t{degrees.stages()}},
                                 {"chunks", std::int64_t{degrees.chunks}},
                                 {"tensor", std::int64_t{degrees.tensor}},
                                 {"sum", std::string(to_string(degrees.sum))}},
                                nullptr);
    fixed.base.schedule.micro_batches = degrees.micro_batches;
    return find_planner("3d").plan(fixed);
  }

  /// All that the mode does not refuse where it has nothing to choose. @param micro_batches counts to be looked at.
  std::vector<Combination> all(const PlanEvaluation& evaluate, const std::vector<int>& micro_batches) const {
    const int ranks = base_.mesh.num_ranks();
    const PlanRequest open = request({}, &evaluate);
    StepBounds bounds(open);
    std::vector<Combination> found;
    for (int places = 1; places <= ranks; ++places) {
      for (int chunks = 1; chunks <= std::ssize(point_.graph.blocks); ++chunks) {
        for (int tensor = 1; tensor <= base_.mesh.ranks_per_node; ++tensor) {
          for (const PartialSums sum : {PartialSums::scatter, PartialSums::all_reduce}) {
            for (const int count : micro_batches) {
              if (tensor == 1 && sum == PartialSums::all_reduce) continue;
              if (places == 1 && chunks > 1) continue;
              const ParallelDegrees degrees{
                  .places = places, .chunks = chunks, .tensor = tensor, .sum = sum, .micro_batches = count};
              Plan plan;
              try {
                plan = plan_of(degrees);
              } catch (const Unsupported&) {
                continue;
              }
              const Evaluation simulated = evaluate(plan);
              if (simulated.step_seconds == 0.0) {
                EXPECT_THAT(simulated.missing, HasSubstr("cannot be lowered")) << in_words(degrees, ranks);
                continue;
              }
              const double at_least = bounds.seconds(degrees, plan);
              EXPECT_LE(at_least, simulated.step_seconds * (1.0 + 1e-9)) << in_words(degrees, ranks);
              EXPECT_GE(at_least, 0.2 * simulated.step_seconds) << in_words(degrees, ranks);
              EXPECT_LE(bounds.kernel_seconds(degrees, plan), at_least) << in_words(degrees, ranks);
              const std::int64_t least_bytes = bounds.bytes(degrees, plan);
              EXPECT_LE(least_bytes, simulated.peak_bytes) << in_words(degrees, ranks);
              EXPECT_GE(least_bytes, simulated.peak_bytes / 5) << in_words(degrees, ranks);
              found.push_back({degrees, simulated.step_seconds, simulated.peak_bytes});
            }
          }
        }
      }
    }
    return found;
  }
  const PreparedPoint& point() const { return point_; }

 private:
  Experiment experiment_;
  PreparedPoint point_;
  Plan base_;
};

const Combination& fastest_within(const std::vector<Combination>& all, std::int64_t capacity) {
  return *std::ranges::min_element(all, {}, [&](const Combination& c) {
    return c.peak_bytes <= capacity ? c.seconds : std::numeric_limits<double>::infinity();
  });
}

/// With plenty of memory, and with a byte less than the fastest needs, and again.
void expect_fastest(const std::vector<std::string>& words, std::size_t at_least_combinations,
                    const char* text = small_gpt) {
  const Setting setting(words, text);
  const PlanEvaluation evaluate(setting.point(), file);
  const std::vector<Combination> all =
      setting.all(evaluate, {static_cast<int>(setting.point().plan.schedule.micro_batches)});
  EXPECT_GE(all.size(), at_least_combinations);
  std::int64_t capacity = std::int64_t{1} << 50;
  for (int less = 0; less < 4; ++less) {
    const Combination& best = fastest_within(all, capacity);
    if (best.peak_bytes > capacity) break;
    const CountedEvaluation counted(evaluate);
    const Plan plan = setting.search({}, capacity, counted);
    EXPECT_EQ(plan.why.predicted_seconds, best.seconds) << plan.why.binding;
    EXPECT_EQ(plan.why.predicted_peak_bytes, best.peak_bytes) << plan.why.binding;
    EXPECT_EQ(evaluate(plan).step_seconds, best.seconds);
    if (less == 0) {
      EXPECT_LT(counted.num_simulated, static_cast<int>(all.size()) * 2 / 3);
    }
    EXPECT_NO_THROW(verify(plan, setting.point().graph));
    EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan);
    capacity = best.peak_bytes - 1;
  }
  EXPECT_THAT(out_of_memory([&] { setting.search({}, 1 << 20, evaluate); }),
              AllOf(HasSubstr("nothing fits into a device memory of 0.0010 GiB (1048576 bytes): data "),
                    HasSubstr("needs"), HasSubstr("others do not fit either")));
}

TEST(ParallelDegrees, AreTheFastestOfAllOn8Ranks) {
  expect_fastest({}, 34);
  expect_fastest({"train.recompute=block", "train.clip_norm=1", "train.dtype=fp32", "model.tied_head=true"}, 34);
}

/// Pairs of ranks have links of their own, and two nodes share a stage or have several.
TEST(ParallelDegrees, AreTheFastestOfAllWhereOnlyPairsHaveFastLinks) {
  expect_fastest({"cluster=rtx3090-nvlink", "resources.nodes=2", "resources.ranks_per_node=4"}, 30);
  expect_fastest({"cluster=rtx3090-nvlink", "resources.nodes=2", "resources.ranks_per_node=4", "train.micro_batches=4",
                  "overlap.all_reduce=none", "overlap.layout=weight_gradient"},
                 10);
}

TEST(ParallelDegrees, AreTheFastestOfAllOn16Ranks) {
  expect_fastest({"resources.nodes=2"}, 48);
  expect_fastest({"resources.nodes=2", "overlap.update=backward", "train.global_batch=112"}, 48);
}

TEST(ParallelDegrees, AreTheFastestOfAllOn64Ranks) {
  expect_fastest({"resources.nodes=8", "train.global_batch=512"}, 50);
}

TEST(ParallelDegrees, AreTheFastestOfAllForUnevenModels) {
  expect_fastest({"resources.ranks_per_node=4"}, 15, uneven_gpt);
  if (is_deep()) expect_fastest({}, 60, uneven_gpt);
}

TEST(ParallelDegrees, MicroBatchesAreSearchedWhereAsked) {
  const Setting setting({"train.global_batch=64"});
  const PlanEvaluation evaluate(setting.point(), file);
  std::vector<Combination> all = setting.all(evaluate, {1, 2, 4, 8, 16, 32, 64});
  std::erase_if(all, [](const Combination& c) {
    return c.degrees.micro_batches > 1 && 64 / c.degrees.micro_batches % c.degrees.data(8) != 0;
  });
  const Combination& best = fastest_within(all, std::int64_t{1} << 50);
  const CountedEvaluation counted(evaluate);
  const Plan plan = setting.search({{"micro_batches", std::string("planner")}}, 0, counted);
  EXPECT_EQ(plan.why.predicted_seconds, best.seconds) << plan.why.binding;
  EXPECT_LT(counted.num_simulated, static_cast<int>(all.size()) / 4);
  // Whoever leaves them open asks for the same.
  const Experiment open = experiment({"train.global_batch=64", "train.micro_batches=0"});
  EXPECT_EQ(prepare_point(open, file).plan.why.predicted_seconds, best.seconds);
}

TEST(ParallelDegrees, GivenOnesAreTaken) {
  const Setting setting({"resources.nodes=2"});
  const PlanEvaluation evaluate(setting.point(), file);
  const Plan plan = setting.search({{"stages", std::int64_t{8}}, {"tensor", std::int64_t{2}}}, 0, evaluate);
  EXPECT_EQ(plan.stages.count, 8);
  const Plan exact = setting.search({{"stages", std::int64_t{8}},
                                     {"chunks", std::int64_t{2}},
                                     {"tensor", std::int64_t{4}},
                                     {"sum", std::string("all_reduce")}},
                                    0, evaluate);
  EXPECT_EQ(exact.mesh.axes, (std::vector<MeshAxis>{{"stage", 4}}));
  EXPECT_EQ(exact.schedule.kind, ScheduleKind::interleaved);
  EXPECT_THAT(exact.why.binding, HasSubstr("data 1 × tensor 4 (all_reduce) × stage 8 (2 a rank), 8 micro-batches"));
  // Tensor ranks of two nodes where asked for.
  const Plan wide = setting.search({{"stages", std::int64_t{1}}, {"tensor", std::int64_t{16}}}, 0, evaluate);
  EXPECT_THAT(wide.why.binding, HasSubstr("data 1 × tensor 16"));
  const auto refused = [&](const Options& options) { return refusal([&] { setting.search(options, 0, evaluate); }); };
  EXPECT_THAT(refused({{"stages", std::int64_t{16}}}),
              HasSubstr("3d on 16 ranks: no data, tensor and stage degrees: 3d: 16 stages on 16 ranks, but gpt has 8 "
                        "blocks, and a stage has one or more"));
  EXPECT_THAT(refused({{"stages", std::int64_t{3}}}), HasSubstr("are not divisible by 3 stages"));
  EXPECT_THAT(refused({{"tensor", std::int64_t{3}}}), HasSubstr("tensor = 3 does not divide the 16 ranks of a stage"));
  EXPECT_THAT(refused({{"stages", std::int64_t{8}}, {"chunks", std::int64_t{3}}}),
              HasSubstr("8 stages in chunks of 3"));
}

/// What was refused is not taken for priced where it is asked again, by other stages a rank say.
TEST(ParallelDegrees, BoundsRefuseWhatCannotBeEachTime) {
  const Setting setting({});
  const PlanEvaluation evaluate(setting.point(), file);
  const PlanRequest open = setting.request({}, &evaluate);
  StepBounds bounds(open);
  for (const int chunks : {1, 2}) {
    EXPECT_THAT(user_error([&] { bounds.kernel_seconds({.places = 3, .chunks = chunks}, open.base); }),
                HasSubstr("3 stages are neither whole nodes nor an even part of one, of 1 nodes x 8 ranks"));
  }
}

/// Interleaved stages that places do not divide the micro-batches of have no order, and no time that it takes.
TEST(ParallelDegrees, PassesAreTakenInTurnWherePlacesDivideMicroBatches) {
  Plan plan{.mesh = {.nodes = 1, .ranks_per_node = 2, .axes = {{"stage", 2}}}};
  plan.stages.count = 4;
  plan.schedule.kind = ScheduleKind::interleaved;
  for (const int micro_batches : {1, 2, 3, 4}) {
    plan.schedule.micro_batches = micro_batches;
    EXPECT_EQ(takes_passes_in_turn(plan), micro_batches % 2 == 0) << micro_batches;
  }
  plan.schedule.kind = ScheduleKind::one_forward_one_backward;
  plan.schedule.micro_batches = 3;
  EXPECT_TRUE(takes_passes_in_turn(plan));
  plan.schedule.sub_batches = 2;
  EXPECT_FALSE(takes_passes_in_turn(plan));
}

/// Three micro-batches through three places, of which the others take no time. The first one is a forward until 10, 20
/// and 30. Behind that the first backward's collective, from 20 to 21, runs under the last forward; what is run again
/// ends at 40, its kernel at 41. The second one's gradient is received behind the forwards: its collective takes from
/// 30 to 60, beside what runs again, and the third one's to 90.
TEST(ParallelDegrees, CollectivesBeforeKernelsRunUnderEarlierKernels) {
  Plan plan{.mesh = {.nodes = 1, .ranks_per_node = 3, .axes = {{"stage", 3}}}};
  plan.stages.count = 3;
  plan.schedule = {.kind = ScheduleKind::one_forward_one_backward, .micro_batches = 3};
  std::vector<StagePrice> stages(3);
  for (const std::size_t which : {std::size_t{0}, std::size_t{1}}) {
    for (StagePrice& stage : stages) {
      stage.passes.forward[which].append(0.0, false);
      stage.passes.backward[which].append(0.0, false);
    }
    PassPrices& first = stages.front().passes;
    first.forward[which] = first.again[which] = first.backward[which] = {};
    first.forward[which].append(10.0, false);
    first.again[which].append(10.0, false);
    first.backward[which].append(which == 0 ? 1.0 : 30.0, true);
    first.backward[which].append(1.0, false);
  }
  const std::vector<double> messages(3);
  EXPECT_EQ(seconds_of_passes_in_turn(plan, stages, messages, true, true), 91.0);
  EXPECT_EQ(seconds_of_passes_in_turn(plan, stages, messages, false, true), 72.0);
}

/// Where nothing is summed over replicas, all of a step is in its bound, over slow links too: passes, messages that no
/// pass runs under, and collectives of neighbouring passes one after another.
TEST(ParallelDegrees, BoundsOfPipelinesAreWhatTheyTake) {
  const Setting setting({"cluster=titan-pcie", "train.dtype=fp32", "train.micro_batches=16", "train.global_batch=16"});
  const PlanEvaluation evaluate(setting.point(), file);
  const PlanRequest open = setting.request({}, &evaluate);
  StepBounds bounds(open);
  for (const int places : {2, 4}) {
    for (const int chunks : {1, 2}) {
      for (const PartialSums sum : {PartialSums::scatter, PartialSums::all_reduce}) {
        const ParallelDegrees degrees{
            .places = places, .chunks = chunks, .tensor = 8 / places, .sum = sum, .micro_batches = 16};
        const Plan plan = setting.plan_of(degrees);
        const double simulated = evaluate(plan).step_seconds, at_least = bounds.seconds(degrees, plan);
        EXPECT_LE(at_least, simulated) << in_words(degrees, 8);
        EXPECT_GE(at_least, 0.999 * simulated) << in_words(degrees, 8);
      }
    }
  }
}

TEST(ParallelDegrees, WithoutCostsSeveralAreNotCompared) {
  const Setting setting({});
  const PlanRequest open = setting.request({}, nullptr);
  EXPECT_THAT(refusal([&] { find_planner("3d").plan(open); }),
              AllOf(HasSubstr("3d on 8 ranks: "), HasSubstr("combinations of data, tensor and stage degrees"),
                    HasSubstr("set strategy.stages, strategy.chunks, strategy.tensor and strategy.sum")));
  const PlanRequest one =
      setting.request({{"stages", std::int64_t{2}}, {"chunks", std::int64_t{1}}, {"tensor", std::int64_t{1}}}, nullptr);
  EXPECT_EQ(find_planner("3d").plan(one).mesh.axes, (std::vector<MeshAxis>{{"stage", 2}, {"data", 4}}));
}

}  // namespace
}  // namespace strata::predict::test_parallel_degrees
