/// @file
/// What planners are told of a plan equals what `simulate` says of it, from each source of costs and by either method.

#include <gmock/gmock.h>

#include "app/plan_evaluation.hpp"
#include "app/prediction.hpp"
#include "base/error.hpp"
#include "config/sweep.hpp"

namespace strata::app {
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

PreparedPoint prepared(const std::vector<std::string>& overrides = {}) {
  return prepare_point(expand(read_experiment(minimal, "e.toml", overrides), "simulated").points.at(0).experiment,
                       file);
}

TEST(PlanEvaluation, SaysWhatSimulateSays) {
  for (const std::string cost : {"paper", "analytic"}) {
    for (const std::string method : {"simulation", "estimate"}) {
      for (const std::string mode : {"ddp", "1f1b"}) {
        std::vector<std::string> words = {"planner.cost=" + cost, "planner.method=" + method, "simulate.cost=" + cost,
                                          "simulate.method=" + method, "strategy.name=" + mode};
        if (mode == "1f1b") words.emplace_back("strategy.stages=4");
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
        EXPECT_EQ(e.bytes_sent[Collective::all_reduce], row.all_reduce_sent_bytes);
        EXPECT_EQ(e.bytes_sent[Collective::send], row.send_sent_bytes);
        EXPECT_EQ(e.bytes_sent[Collective::send] > 0, mode == "1f1b");
        EXPECT_EQ(e.source, prediction.source);
      }
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

}  // namespace
}  // namespace strata::app
