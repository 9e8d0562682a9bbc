/// @file
/// What planners are told of a plan equals what `simulate` says of it, from each source of costs.

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/sweep.hpp"
#include "lower/fewer_micro_batches.hpp"
#include "planners/joint/moves.hpp"
#include "planners/pipelines/degrees.hpp"
#include "planners/states/communication.hpp"
#include "predict/plan_evaluation.hpp"
#include "predict/prediction.hpp"
#include "predict/strategy_options.hpp"
#include "unit/predict/small_gpt.hpp"

namespace strata::predict::test_plan_evaluation {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* file = "/no/such/folder/e.toml";
constexpr const char* minimal = R"(name = "tiny"
cluster = "a800-ib"
[model]
name = "gpt-nano"
layers = 4
[data]
format = "synthetic"
[resources]
nodes = 2
ranks_per_node = 8
[train]
global_batch = 64
micro_batches = 2
[strategy]
name = "ddp"
)";

PreparedPoint prepared(const std::vector<std::string>& overrides = {}, const char* text = minimal) {
  return prepare_point(expand(read_experiment(text, "e.toml", overrides), "simulated").points.at(0).experiment, file);
}

TEST(PlanEvaluation, SaysWhatSimulateSays) {
  for (const std::string cost : {"paper", "analytic"}) {
    for (const auto& [mode, micro_batches] : {std::pair("ddp", 2), {"ddp", 8}, {"1f1b", 2}}) {
      const bool has_stages = mode == std::string_view("1f1b");
      std::vector<std::string> words = {"planner.cost=" + cost, "simulate.cost=" + cost,
                                        fmt::format("strategy.name={}", mode),
                                        fmt::format("train.micro_batches={}", micro_batches),
                                        fmt::format("train.global_batch={}", 32 * micro_batches)};
      if (has_stages) words.emplace_back("strategy.stages=4");
      const PreparedPoint point = prepared(words);
      const LoweredJob lowered = lower_job(point);
      const Prediction prediction = predict(point, lowered, *cost_model(point, file));
      const results::StepRow row = step_row(point, lowered, prediction.simulation, 0);
      const PlanEvaluation evaluate(point, file);
      const Evaluation e = evaluate(point.plan);
      EXPECT_TRUE(e.feasible()) << e.missing;
      EXPECT_GT(e.step_seconds, 0.0);
      EXPECT_EQ(e.step_seconds, row.step_seconds_max);
      EXPECT_EQ(e.peak_bytes, row.arena_peak_bytes);
      EXPECT_EQ(e.bytes_sent[Collective::all_reduce], row.sent_bytes[static_cast<std::size_t>(Collective::all_reduce)]);
      EXPECT_EQ(e.bytes_sent[Collective::send], row.sent_bytes[static_cast<std::size_t>(Collective::send)]);
      EXPECT_EQ(e.bytes_sent[Collective::send] > 0, has_stages);
      EXPECT_EQ(e.source, prediction.source);
    }
  }
}

TEST(PlanEvaluation, ThePlannersSourceIsItsOwn) {
  const PreparedPoint point = prepared({"planner.cost=paper", "simulate.cost=analytic"});
  const PlanEvaluation evaluate(point, file);
  EXPECT_THAT(evaluate(point.plan).source, HasSubstr("simulator, paper: "));
}

TEST(PlanEvaluation, NoiseIsNoPartOfAPlansCost) {
  const PreparedPoint still = prepared();
  const PreparedPoint noisy = prepared(
      {"simulate.noise=0.3", "simulate.straggler_ranks=[1]", "simulate.straggler_slowdown=3", "simulate.steps=4"});
  EXPECT_EQ(PlanEvaluation(noisy, file)(still.plan).step_seconds, PlanEvaluation(still, file)(still.plan).step_seconds);
}

TEST(PlanEvaluation, WhatDoesNotFitKeepsItsNumbersAndSaysWhatIsMissing) {
  PreparedPoint point = prepared();
  const PlanEvaluation evaluate(point, file);
  const Evaluation fits = evaluate(point.plan);
  point.plan.device_capacity_bytes = fits.peak_bytes;
  EXPECT_TRUE(evaluate(point.plan).feasible()) << "to the byte";
  --point.plan.device_capacity_bytes;
  const Evaluation tight = evaluate(point.plan);
  EXPECT_FALSE(tight.feasible());
  EXPECT_THAT(tight.missing, HasSubstr("(" + std::to_string(fits.peak_bytes) + " of " +
                                       std::to_string(fits.peak_bytes - 1) + " bytes)"));
  EXPECT_EQ(tight.step_seconds, fits.step_seconds);
  EXPECT_EQ(tight.peak_bytes, fits.peak_bytes);
}

TEST(PlanEvaluation, WhatLoweringRefusesIsSaidNotThrown) {
  PreparedPoint point = prepared();
  point.plan.schedule.kind = ScheduleKind::cyclic;
  const Evaluation refused = PlanEvaluation(point, file)(point.plan);
  EXPECT_FALSE(refused.feasible());
  EXPECT_EQ(refused.peak_bytes, 0);
  EXPECT_EQ(refused.step_seconds, 0.0);
}

TEST(PlanEvaluation, OnePlanOfTwoModesTakesTheSameAndIsRefusedInTheWordsOfTheOneThatAsks) {
  const PreparedPoint point = prepared();
  const PlanEvaluation evaluate(point, file);
  Plan fits = point.plan, refused = point.plan;
  refused.schedule.kind = ScheduleKind::cyclic;
  const Evaluation first = evaluate(fits);
  evaluate(refused);
  fits.strategy = refused.strategy = "another";
  const Evaluation again = evaluate(fits);
  EXPECT_GT(again.step_seconds, 0.0);
  EXPECT_EQ(again.step_seconds, first.step_seconds);
  EXPECT_EQ(again.peak_bytes, first.peak_bytes);
  EXPECT_THAT(evaluate(refused).missing, HasSubstr("`another`"));
}

/// Of whole tensors that are dealt to many ranks, one Program of each of the few that differ otherwise says as much.
TEST(PlanEvaluation, AtLeastIsNearlyAllWhereWholeTensorsAreDealt) {
  int compared = 0;
  for (const std::string mode : {"amsp", "3d"}) {
    std::vector<std::string> words = {"strategy.name=" + mode, "model.layers=8", "resources.nodes=8",
                                      "train.global_batch=256", "model.hidden=64"};
    if (mode == "3d") words.insert(words.end(), {"strategy.tensor=2", "strategy.stages=1"});
    const PreparedPoint point = prepared(words);
    const PlanEvaluation evaluate(point, file);
    for (const int micro_batches : {1, 4}) {
      for (const char* update : {"none", "backward"}) {
        for (const std::int64_t bucket_bytes : {4096, 1 << 20}) {
          Plan plan = point.plan;
          plan.schedule.micro_batches = micro_batches;
          plan.overlap.update = update;
          plan.overlap.bucket_bytes = bucket_bytes;
          for (OperatorRule& rule : plan.operators) rule.state.reset();
          plan.operators.insert(plan.operators.begin(),
                                {.match = "*", .state = StateFactors{.os = {mode == "amsp" ? 8 : 4, 8}}});
          plan.optimizer.sharding = "inter_tensor";
          plan.optimizer.spread = "broadcast";
          const Evaluation found = evaluate(plan);
          const double seconds = found.step_seconds;
          const std::optional<Evaluation> bound = evaluate.at_least(plan);
          const double least = bound ? bound->step_seconds : 0.0;
          const std::string which = fmt::format("{}, {} micro-batches, update {}, buckets of {}: {}", mode,
                                                micro_batches, update, bucket_bytes, found.missing);
          EXPECT_GT(seconds, 0.0) << which;
          EXPECT_LE(least, seconds) << which;
          EXPECT_GE(least, 0.9 * seconds) << which;
          ASSERT_TRUE(bound) << which;
          EXPECT_LE(bound->peak_bytes, found.peak_bytes) << which;
          EXPECT_GE(bound->peak_bytes, found.peak_bytes / 2) << which;
          ++compared;
          plan.optimizer.sharding = "intra_tensor";
          plan.optimizer.spread = "all_gather";
          if (mode == "amsp") {
            EXPECT_FALSE(evaluate.at_least(plan)) << "one Program is all there is";
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 2 * 2 * 2 * 2);
}

/// A vocabulary of 1,025 tokens: on two tensor ranks one has a token more.
TEST(PlanEvaluation, AtLeastIsNearlyAllWhereAVocabularyDoesNotDivide) {
  constexpr double rounding = 1e-6;  // of events in whole nanoseconds, and of the order of those that share a NIC
  int compared = 0;
  for (const char* tensor : {"2", "4"}) {
    for (const char* stages : {"1", "2"}) {
      const PreparedPoint point = prepared(
          {"cluster=a100-2x8", "model.vocabulary=1025", "model.hidden=256", "model.heads=4", "strategy.name=3d",
           std::string("strategy.tensor=") + tensor, std::string("strategy.stages=") + stages});
      const PlanEvaluation evaluate(point, file);
      Plan plan = point.plan;
      for (const int sub_batches : {1, 2}) {
        plan.schedule.sub_batches = sub_batches;
        for (const bool is_sharded : {false, true}) {
          if (is_sharded)
            plan.operators.insert(plan.operators.begin(), {.match = "*", .state = StateFactors{.os = {2, 1}}});
          const std::string which =
              fmt::format("tensor {}, stages {}, {} sub-batches, sharded {}", tensor, stages, sub_batches, is_sharded);
          const Evaluation found = evaluate(plan);
          const std::optional<Evaluation> bound = evaluate.at_least(plan);
          ASSERT_TRUE(bound) << which << found.missing;
          EXPECT_LE(bound->step_seconds, found.step_seconds * (1.0 + rounding))
              << which << " over " << bound->step_seconds / found.step_seconds - 1.0;
          EXPECT_GE(bound->step_seconds, 0.99 * found.step_seconds) << which;
          EXPECT_LE(bound->peak_bytes, found.peak_bytes) << which;
          EXPECT_GE(bound->peak_bytes, found.peak_bytes / 2) << which;
          plan.device_capacity_bytes = bound->peak_bytes - 1;
          EXPECT_FALSE(evaluate.at_least(plan)->feasible()) << which;
          plan.device_capacity_bytes = 0;
          ++compared;
        }
        plan.operators.erase(plan.operators.begin());
      }
      plan.schedule.sub_batches = 1;
      plan.schedule.kind = ScheduleKind::cyclic;
      EXPECT_FALSE(evaluate.at_least(plan)) << "what is refused says so where it is asked";
    }
  }
  EXPECT_EQ(compared, 2 * 2 * 2 * 2);
}

TEST(PlanEvaluation, ADividingVocabularyHasNothingToLeaveOut) {
  for (const char* vocabulary : {"model.vocabulary=50256", "model.vocabulary=50257"}) {
    const PreparedPoint point = prepared({vocabulary, "strategy.name=3d", "strategy.tensor=2", "strategy.stages=1"});
    EXPECT_EQ(PlanEvaluation(point, file).at_least(point.plan).has_value(),
              vocabulary == std::string("model.vocabulary=50257"));
  }
}

/// 48 blocks, all alike or the first 12 run again. Where sixteen ranks share every product there are no gradients to
/// sum, and each block adds the same; elsewhere buckets end within blocks.
TEST(PlanEvaluation, FewBlocksSayWhatAllTake) {
  struct Case {
    const char* tensor;
    std::int64_t bucket_bytes;
    double off;  ///< at most, over all blocks' seconds
  };
  for (const Case& c : {Case{"16", 1 << 20, 1e-6}, {"8", 1 << 20, 0.03}, {"2", 1 << 20, 0.02}, {"2", 100'000, 0.02}}) {
    for (const bool runs_again : {false, true}) {
      const PreparedPoint point = prepared({"cluster=a100-2x8", "model.layers=48", "model.hidden=256", "model.heads=16",
                                            "model.vocabulary=1025", "strategy.name=3d", "strategy.stages=1",
                                            std::string("strategy.tensor=") + c.tensor});
      const PlanEvaluation evaluate(point, file);
      Plan plan = point.plan;
      plan.overlap.bucket_bytes = c.bucket_bytes;
      if (runs_again) plan.operators.push_back({.match = "block[0..11].*", .recompute = Recompute::block});
      const std::string which = fmt::format("tensor {}, buckets of {}, {}", c.tensor, c.bucket_bytes, runs_again);
      const double seconds = evaluate(plan).step_seconds;
      const std::optional<double> told = evaluate.seconds_of_few(plan, Tokens::all);
      ASSERT_TRUE(told) << which;
      EXPECT_NEAR(*told, seconds, c.off * seconds) << which << " off by " << *told / seconds - 1.0;
      // Without the one token of 1,025 that is left over, of 65 that a rank has.
      const std::optional<double> even = evaluate.seconds_of_few(plan, Tokens::that_divide);
      ASSERT_TRUE(even) << which;
      EXPECT_LT(*even, *told) << which;
      EXPECT_GT(*even, 0.99 * *told) << which;
    }
  }
}

/// 48 micro-batches through four places, of which eight and ten, or eight and twelve, are simulated. Of interleaved
/// stages that take unlike times later rounds take longer than the first ones.
TEST(PlanEvaluation, FewMicroBatchesSayWhatAllTake) {
  for (const std::string chunks : {"1", "2"}) {
    for (const bool runs_again : {false, true}) {
      const double off = chunks == "2" && runs_again ? 0.03 : 1e-6;  // at most, over all micro-batches' seconds
      const PreparedPoint point =
          prepared({"cluster=a100-2x8", "resources.nodes=1", "model.layers=8", "model.vocabulary=50257",
                    "strategy.name=3d", "strategy.stages=4", "strategy.chunks=" + chunks, "strategy.tensor=2",
                    "train.global_batch=96", "train.micro_batches=48"});
      const PlanEvaluation evaluate(point, file);
      Plan plan = point.plan;
      if (runs_again) plan.operators.push_back({.match = "block[0..1].*", .recompute = Recompute::block});
      const std::string which = fmt::format("{} chunks, {}", chunks, runs_again);
      const double seconds = evaluate(plan).step_seconds;
      const std::optional<double> told = evaluate.seconds_of_few(plan, Tokens::all);
      ASSERT_TRUE(told) << which;
      EXPECT_NEAR(*told, seconds, off * seconds) << which << " off by " << *told / seconds - 1.0;
      const std::optional<double> even = evaluate.seconds_of_few(plan, Tokens::that_divide);
      ASSERT_TRUE(even) << which;
      EXPECT_LT(*even, *told) << which;
      EXPECT_GT(*even, 0.99 * *told) << which;
    }
  }
}

TEST(PlanEvaluation, FewMicroBatchesSayNothingOfOtherSchedulesNorOfFewerNorOfWhatIsRefused) {
  const auto told = [](int micro_batches, ScheduleKind kind) {
    const PreparedPoint point =
        prepared({"cluster=a100-2x8", "resources.nodes=1", "strategy.name=3d", "strategy.stages=4", "strategy.tensor=2",
                  "train.global_batch=96", fmt::format("train.micro_batches={}", micro_batches)});
    Plan plan = point.plan;
    plan.schedule.kind = kind;
    return PlanEvaluation(point, file).seconds_of_few(plan, Tokens::all).has_value();
  };
  // As many as there are places, and two more.
  EXPECT_TRUE(told(16, ScheduleKind::one_forward_one_backward));
  EXPECT_FALSE(told(12, ScheduleKind::one_forward_one_backward));
  EXPECT_FALSE(told(48, ScheduleKind::gpipe));
  EXPECT_FALSE(told(48, ScheduleKind::cyclic));
}

/// In stages and over tensor ranks: by what a decision changes all tokens, it changes those that divide.
TEST(PlanEvaluation, AnEvenVocabularySaysByHowMuchADecisionChangesASchedule) {
  const PreparedPoint point =
      prepared({"cluster=a100-2x8", "resources.nodes=1", "model.layers=8", "model.vocabulary=50257", "strategy.name=3d",
                "strategy.stages=2", "strategy.tensor=4", "train.micro_batches=8"});
  const PlanEvaluation evaluate(point, file);
  std::vector<Plan> moves(4, point.plan);
  moves[0].operators.push_back({.match = "block[0..3].*", .recompute = Recompute::block});
  moves[1].recompute = Recompute::block;
  moves[2].overlap.layout = "weight_gradient";
  moves[3].schedule.micro_batches = 4;
  const double seconds = evaluate(point.plan).step_seconds;
  const std::optional<Evaluation> even = evaluate.at_least(point.plan);
  ASSERT_TRUE(even);
  EXPECT_LT(even->step_seconds, seconds);
  for (const Plan& move : moves) {
    const std::optional<Evaluation> of_move = evaluate.at_least(move);
    ASSERT_TRUE(of_move) << to_text(move);
    const double about = of_move->step_seconds * seconds / even->step_seconds;
    const double of_all = evaluate(move).step_seconds;
    EXPECT_GT(std::abs(of_all / seconds - 1.0), 1e-3) << "changes something\n" << to_text(move);
    EXPECT_NEAR(about, of_all, 1e-4 * of_all) << to_text(move);
  }
}

TEST(PlanEvaluation, FewBlocksSayNothingOfStagesNorOfFewerBlocksNorOfWhatIsRefused) {
  const std::vector<std::string> words = {"strategy.name=3d", "strategy.tensor=2"};
  const auto told = [&](const std::vector<std::string>& more, ScheduleKind kind) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    const PreparedPoint point = prepared(all);
    Plan plan = point.plan;
    if (kind != ScheduleKind::simultaneous) plan.schedule.kind = kind;
    return PlanEvaluation(point, file).seconds_of_few(plan, Tokens::all).has_value();
  };
  EXPECT_TRUE(told({"model.layers=16", "strategy.stages=1"}, ScheduleKind::simultaneous));
  EXPECT_FALSE(told({"model.layers=15", "strategy.stages=1"}, ScheduleKind::simultaneous));
  EXPECT_FALSE(told({"model.layers=16", "strategy.stages=2"}, ScheduleKind::simultaneous));
  EXPECT_FALSE(told({"model.layers=16", "strategy.stages=1"}, ScheduleKind::cyclic));
}

TEST(PlanEvaluation, TheAccountNeedsNoCosts) {
  const PreparedPoint point = prepared({"cluster=this", "resources.nodes=1"});
  const PlanEvaluation evaluate(point, file);
  const Evaluation account = evaluate.account(point.plan);
  EXPECT_TRUE(account.feasible());
  EXPECT_GT(account.peak_bytes, 0);
  EXPECT_GT(account.bytes_sent[Collective::all_reduce], 0);
  EXPECT_EQ(account.step_seconds, 0.0);
  EXPECT_THAT([&] { evaluate(point.plan); },
              ThrowsMessage<UserError>(AllOf(HasSubstr("planner.cost"), HasSubstr("strata profile"))));
}

/// The fullest ranks tell the peak that all tell, and what does not fit by a byte is not taken.
TEST(PlanEvaluation, AmspTakesMemoryFromThePrograms) {
  const std::vector<std::string> amsp = {"strategy.name=amsp", "model.name=gpt2-small"};
  std::vector<std::string> words = amsp;
  for (const char* word : {"resources.memory_gib=0", "strategy.p=2x1", "strategy.g=2x1", "strategy.os=8x2"}) {
    words.emplace_back(word);
  }
  const PreparedPoint sharded = prepared(words);
  const PlanEvaluation evaluate(sharded, file);
  const Evaluation needed = evaluate.memory(sharded.plan);
  EXPECT_EQ(needed.peak_bytes, evaluate.account(sharded.plan).peak_bytes);
  EXPECT_LE(needed.peak.total_bytes, needed.peak_bytes);
  const std::int64_t least = evaluate.least_memory(sharded.plan).peak_bytes;
  EXPECT_LE(least, needed.peak_bytes);
  EXPECT_GE(static_cast<double>(least), 0.9 * static_cast<double>(needed.peak_bytes));

  Plan base = sharded.plan;
  base.device_capacity_bytes = needed.peak_bytes;
  std::map<std::string, OptionValue> options = complete_strategy_options(sharded.experiment);
  for (const char* factor : {"p", "g", "os"}) options[factor] = std::string("planner");
  PlanRequest request{.graph = sharded.graph, .cluster = sharded.cluster, .base = base, .options = options};
  request.evaluate = &evaluate;
  const Plan found = find_planner("amsp").plan(request);
  EXPECT_LE(found.why.predicted_peak_bytes, needed.peak_bytes);
  EXPECT_EQ(found.why.predicted_peak_bytes, evaluate.account(found).peak_bytes);
  const double seconds = StateCommunication(sharded.graph, sharded.plan, analytic_costs(sharded.cluster).get())
                             .seconds(*sharded.plan.operators.front().state)
                             .total();
  EXPECT_LE(found.why.predicted_seconds, seconds);
  // A byte less, and it is another.
  request.base.device_capacity_bytes = found.why.predicted_peak_bytes - 1;
  const Plan tighter = find_planner("amsp").plan(request);
  EXPECT_NE(tighter.operators, found.operators);
  EXPECT_LE(tighter.why.predicted_peak_bytes, request.base.device_capacity_bytes);
}

TEST(PlanEvaluation, KnowsSecondsWhereCostsAreKnown) {
  EXPECT_TRUE(PlanEvaluation(prepared(), file).knows_seconds());
  EXPECT_FALSE(PlanEvaluation(prepared({"cluster=this", "resources.nodes=1"}), file).knows_seconds());
}

/// As experiments/osdp asks for it.
constexpr const char* on_titans = R"(name = "titans"
cluster = "titan-pcie"
[model]
name = "mingpt-ic-24"
sequence_length = 576
[data]
format = "synthetic"
[resources]
ranks_per_node = 8
[train]
optimizer = "adamw"
dtype = "fp32"
[strategy]
name = "osdp"
)";

/// A plan and what it takes by evaluation.
Plan of_osdp(const std::string& mode, const std::string& model, int memory_gib, const std::string& batch,
             const std::string& recompute = "none") {
  const PreparedPoint point =
      prepared({"strategy.name=" + mode, "model.name=" + model, fmt::format("resources.memory_gib={}", memory_gib),
                "train.global_batch=" + batch, "train.recompute=" + recompute},
               on_titans);
  const Evaluation evaluation = PlanEvaluation(point, file)(point.plan);
  Plan plan = point.plan;
  if (plan.why.predicted_seconds == 0.0) plan.why.predicted_seconds = evaluation.step_seconds;  // no search
  EXPECT_EQ(plan.why.predicted_seconds, evaluation.step_seconds);
  plan.why.predicted_peak_bytes = evaluation.peak_bytes;
  return plan;
}

double samples_per_second(const Plan& plan) {
  return static_cast<double>(plan.global_batch) / plan.why.predicted_seconds;
}

/// The closed form needs more for four samples than there is, their Program does not.
TEST(PlanEvaluation, OsdpTakesABatchThatOnlyTheProgramHasRoomFor) {
  EXPECT_EQ(of_osdp("osdp-base", "mingpt-ic-24", 8, "planner").global_batch, 32);
}

TEST(PlanEvaluation, OsdpDoesNotRefuseWhatZeroThreeHasRoomFor) {
  const Plan zero3 = of_osdp("zero3", "mingpt-ws-4x6144", 8, "8", "block");
  ASSERT_LE(zero3.why.predicted_peak_bytes, zero3.device_capacity_bytes);
  const Plan osdp = of_osdp("osdp", "mingpt-ws-4x6144", 8, "8", "block");
  EXPECT_LE(osdp.why.predicted_peak_bytes, osdp.device_capacity_bytes);
  EXPECT_GE(samples_per_second(osdp), samples_per_second(zero3));
}

TEST(PlanEvaluation, OsdpIsNeverSlowerThanWithoutSlicesNorThatThanPurePlans) {
  for (const char* model : {"mingpt-ws-2x6144", "mingpt-ic-24"}) {
    for (const int memory_gib : {8, 16}) {
      const double osdp = samples_per_second(of_osdp("osdp", model, memory_gib, "planner"));
      const double whole = samples_per_second(of_osdp("osdp-base", model, memory_gib, "planner"));
      EXPECT_GE(osdp, whole) << model << " " << memory_gib;
      for (const char* pure : {"zero3", "ddp"}) {
        for (int batch = 8;; batch += 8) {
          const Plan plan = of_osdp(pure, model, memory_gib, fmt::format("{}", batch));
          if (plan.why.predicted_peak_bytes > plan.device_capacity_bytes) break;
          EXPECT_GE(whole, samples_per_second(plan)) << model << " " << memory_gib << " " << pure << " " << batch;
        }
      }
    }
  }
}

/// What is asked of four micro-batches holds for more.
TEST(PlanEvaluation, MemoryIsTheAccountsForAnyNumberOfMicroBatches) {
  for (const char* mode : {"ddp", "zero2", "zero3", "amsp", "gpipe"}) {
    for (const int micro_batches : {1, 2, 3, 4, 7, 9}) {
      std::vector<std::string> words = {fmt::format("strategy.name={}", mode),
                                        fmt::format("train.micro_batches={}", micro_batches),
                                        fmt::format("train.global_batch={}", 32 * micro_batches)};
      if (mode == std::string_view("gpipe")) words.emplace_back("strategy.stages=4");
      if (mode == std::string_view("amsp")) {
        for (const char* word : {"strategy.p=1x1", "strategy.g=8x2", "strategy.os=8x2"}) words.emplace_back(word);
      }
      const PreparedPoint point = prepared(words);
      const PlanEvaluation evaluate(point, file);
      const std::int64_t peak_bytes = evaluate.account(point.plan).peak_bytes;
      EXPECT_EQ(evaluate.memory(point.plan).peak_bytes, peak_bytes) << mode << ", " << micro_batches;
      EXPECT_EQ(evaluate(point.plan).peak_bytes, peak_bytes) << mode << ", " << micro_batches;
    }
  }
}

/// Of products on rings one tensor rank has a token more, and one block of three runs again: three micro-batches need
/// less than four, which need what more of them do.
TEST(PlanEvaluation, MemoryIsTheAccountsWhereFirstFitSettlesLate) {
  const PreparedPoint point =
      small_gpt_point({"model.layers=3", "model.vocabulary=1003", "train.global_batch=64"}, file);
  const PlanEvaluation evaluate(point, file);
  const PlanRequest request{.graph = point.graph,
                            .cluster = point.cluster,
                            .base = asked_of(point, "auto", 0),
                            .options = find_planner("auto").with_defaults({}),
                            .evaluate = &evaluate};
  const Plan plain = plan_of_degrees(request, {.tensor = 2, .sum = PartialSums::scatter, .micro_batches = 8});
  Plan plan = on_rings(request, plain);
  const std::vector<Move> held = moves_of_all_states(request, plan);
  const auto sharded = std::ranges::find(held, "gradients and optimizer states over all copies", &Move::words);
  ASSERT_NE(sharded, held.end());
  plan = with_recompute(request, sharded->plan, Recompute::after_communication, 1);
  const std::int64_t peak_bytes = evaluate.account(plan).peak_bytes;
  EXPECT_EQ(evaluate.memory(plan).peak_bytes, peak_bytes);
  EXPECT_EQ(evaluate(plan).peak_bytes, peak_bytes);
  EXPECT_LT(evaluate.account(with_at_most(plan, 3)).peak_bytes, peak_bytes);
}

}  // namespace
}  // namespace strata::predict::test_plan_evaluation
