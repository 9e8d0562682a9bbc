/// @file
/// A step of many micro-batches from one of few takes what the whole one takes, in every mode without a pipeline,
/// whether its micro-batches repeat or not.

#include <gtest/gtest.h>

#include "config/sweep.hpp"
#include "lower/fewer_micro_batches.hpp"
#include "predict/plan_evaluation.hpp"
#include "predict/prediction.hpp"
#include "predict/repeated_micro_batches.hpp"
#include "sim/steady_state.hpp"

namespace strata::predict::test_repeated_micro_batches {
namespace {

constexpr const char* file = "/no/such/folder/e.toml";
constexpr int many = 19;

constexpr const char* minimal = R"(name = "tiny"
cluster = "a800-ib"
[model]
name = "gpt-nano"
layers = 3
[data]
format = "synthetic"
[resources]
nodes = 1
ranks_per_node = 8
[train]
global_batch = 152
micro_batches = 19
)";

PreparedPoint prepared(const std::string& mode, std::vector<std::string> words = {}) {
  words.push_back("strategy.name=" + mode);
  return prepare_point(expand(read_experiment(minimal, "e.toml", words), "simulated").points.at(0).experiment, file);
}

struct Whole {
  results::StepRow row;
  std::vector<double> seconds_by_basis;
};

Whole whole(PreparedPoint point, int micro_batches) {
  point.plan = with_at_most(point.plan, micro_batches);
  const LoweredJob lowered = lower_job_uncapped(point);
  const SimulationResult simulation = predict(point, lowered, *cost_model(point, file)).simulation;
  return {step_row(point, lowered, simulation, simulation.steady_step), simulation.seconds_by_basis};
}

void expect_near(double told, double expected) { EXPECT_NEAR(told, expected, 1e-9 * expected); }

/// What is told of a step from few of its micro-batches is what simulating all of them says.
void expect_the_same(const RepeatedStep& told, const Whole& expected) {
  for (const auto seconds :
       {&results::StepRow::step_seconds_max, &results::StepRow::step_seconds_median, &results::StepRow::compute_seconds,
        &results::StepRow::communication_seconds, &results::StepRow::exposed_communication_seconds,
        &results::StepRow::slowest_rank_compute_seconds, &results::StepRow::slowest_rank_exposed_seconds,
        &results::StepRow::busy_share}) {
    expect_near(told.row.*seconds, expected.row.*seconds);
  }
  EXPECT_NEAR(told.row.other_seconds, expected.row.other_seconds, 1e-9 * expected.row.step_seconds_max);
  for (const auto bytes :
       {&results::StepRow::parameter_bytes, &results::StepRow::gradient_bytes, &results::StepRow::optimizer_bytes,
        &results::StepRow::activation_bytes, &results::StepRow::workspace_bytes, &results::StepRow::communication_bytes,
        &results::StepRow::arena_peak_bytes, &results::StepRow::num_samples}) {
    EXPECT_EQ(told.row.*bytes, expected.row.*bytes);
  }
  for (std::size_t kind = 0; kind < expected.row.sent_bytes.size(); ++kind) {
    EXPECT_EQ(told.row.sent_bytes[kind], expected.row.sent_bytes[kind]) << "collective " << kind;
  }
  for (std::size_t basis = 0; basis < expected.seconds_by_basis.size(); ++basis) {
    expect_near(told.simulation.seconds_by_basis.at(basis), expected.seconds_by_basis[basis]);
  }
}

/// Planners are told the same.
void expect_the_same(const Evaluation& told, const results::StepRow& expected) {
  expect_near(told.step_seconds, expected.step_seconds_max);
  EXPECT_EQ(told.peak_bytes, expected.arena_peak_bytes);
  for (std::size_t kind = 0; kind < expected.sent_bytes.size(); ++kind) {
    EXPECT_EQ(told.bytes_sent.bytes[kind], expected.sent_bytes[kind]) << "collective " << kind;
  }
}

/// A simulation of few of a plan's micro-batches, and what one of them adds.
struct Few {
  Plan plan;
  LoweredJob lowered;
  SimulationResult simulation;
  double period_seconds;

  explicit Few(PreparedPoint point)
      : plan(point.plan), period_seconds(-whole(point, compared_micro_batches - 1).row.step_seconds_max) {
    point.plan = with_at_most(point.plan, compared_micro_batches);
    lowered = lower_job_uncapped(point);
    simulation = predict(point, lowered, *cost_model(point, file)).simulation;
    period_seconds += steady_step_seconds(simulation);
  }
  bool repeats() const { return micro_batches_repeat(plan, lowered, simulation, period_seconds); }
};

TEST(RepeatedMicroBatches, TellWhatTheWholeStepTakes) {
  int num_repeating = 0;
  const std::vector<std::pair<std::string, std::vector<std::string>>> modes = {
      {"ddp", {}},
      {"zero1", {}},
      {"zero2", {}},
      {"zero3", {}},
      {"zeropp", {}},
      {"mics", {}},
      {"osdp", {}},
      {"megatron", {"strategy.tensor=4x1"}},
      {"autoddl", {}},
      {"summa", {}},
      {"merak", {"strategy.tensor=4x1"}},
      {"oases", {"strategy.tensor=2x1"}},
  };
  for (const auto& [mode, words] : modes) {
    for (const std::string cluster : {"a800-ib", "titan-pcie"}) {
      SCOPED_TRACE(mode + " on " + cluster);
      std::vector<std::string> all = words;
      all.push_back("cluster=" + cluster);
      const PreparedPoint point = prepared(mode, all);
      ASSERT_EQ(point.plan.schedule.micro_batches, many);
      ASSERT_TRUE(has_many_alike_micro_batches(point.plan));
      const Whole expected = whole(point, many);
      expect_the_same(PlanEvaluation(point, file)(point.plan), expected.row);
      const std::optional<RepeatedStep> told = repeated_step(point, *cost_model(point, file));
      if (!told) continue;
      ++num_repeating;
      expect_the_same(*told, expected);
    }
  }
  EXPECT_EQ(num_repeating, 2 * static_cast<int>(modes.size()));
}

TEST(RepeatedMicroBatches, RanksThatAreToldApartAreSimulatedWhole) {
  for (const char* word : {"simulate.noise=0.1", "simulate.straggler_ranks=[3]"}) {
    const PreparedPoint point = prepared("ddp", {word});
    EXPECT_FALSE(repeated_step(point, *cost_model(point, file))) << word;
  }
}

TEST(RepeatedMicroBatches, OneInstructionThatFallsBehindIsNoRepetition) {
  Few few(prepared("zero3"));
  ASSERT_TRUE(few.repeats());
  const Program& program = few.lowered.programs.front();
  const auto event = std::ranges::find_if(few.simulation.events, [&](const TimelineEvent& e) {
    const Instruction& in = program.body[static_cast<std::size_t>(e.instruction)];
    return in.is_collective() && in.micro_batch == 4;
  });
  ASSERT_NE(event, few.simulation.events.end());
  event->end_ns += 5;
  EXPECT_FALSE(few.repeats());
  event->end_ns -= 5;
  EXPECT_TRUE(few.repeats());
  few.period_seconds += 5e-9;
  EXPECT_FALSE(few.repeats());
}

TEST(RepeatedMicroBatches, FewOfThemAndPipelinesAreSimulatedWhole) {
  const Plan many_plan = prepared("ddp").plan;
  EXPECT_TRUE(has_many_alike_micro_batches(many_plan));
  EXPECT_FALSE(has_many_alike_micro_batches(with_at_most(many_plan, 2 * compared_micro_batches)));
  EXPECT_FALSE(has_many_alike_micro_batches(prepared("1f1b", {"strategy.stages=2"}).plan));
}

}  // namespace
}  // namespace strata::predict::test_repeated_micro_batches
