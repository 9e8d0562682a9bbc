/// @file
/// A step of many micro-batches told from one of few is the whole one: in modes without a pipeline, in pipelines of one
/// forward and one backward in turn, and where steps overlap.

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "config/sweep.hpp"
#include "lower/fewer_micro_batches.hpp"
#include "predict/plan_evaluation.hpp"
#include "predict/prediction.hpp"
#include "predict/repeated_micro_batches.hpp"
#include "sim/steady_state.hpp"

namespace strata::predict::test_repeated_micro_batches {
namespace {

constexpr const char* file = "/no/such/folder/e.toml";

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
)";

/// On eight ranks. @param samples of a micro-batch.
PreparedPoint prepared(const std::string& mode, std::vector<std::string> words = {}, int micro_batches = 19,
                       int samples = 8) {
  words.push_back("strategy.name=" + mode);
  words.push_back(fmt::format("train.micro_batches={}", micro_batches));
  words.push_back(fmt::format("train.global_batch={}", samples * micro_batches));
  return prepare_point(expand(read_experiment(minimal, "e.toml", words), "simulated").points.at(0).experiment, file);
}

struct Whole {
  results::StepRow row;
  std::vector<double> seconds_by_basis;
  double most_instructions;  ///< of a rank
};

Whole whole(PreparedPoint point, int micro_batches) {
  point.plan = with_at_most(point.plan, micro_batches);
  const LoweredJob lowered = lower_job_uncapped(point);
  const SimulationResult simulation = predict(point, lowered, *cost_model(point, file)).simulation;
  std::size_t most = 0;
  for (const Program& program : lowered.programs) most = std::max(most, program.body.size());
  return {.row = step_row(point, lowered, simulation, simulation.steady_step),
          .seconds_by_basis = simulation.seconds_by_basis,
          .most_instructions = static_cast<double>(most)};
}

void expect_near(double told, double expected, double rounding = 0.0) {
  EXPECT_NEAR(told, expected, 1e-9 * expected + rounding);
}

/// What is told of a step from few of its micro-batches is what simulating all of them says. @param rounding seconds.
void expect_the_same(const RepeatedStep& told, const Whole& expected, double rounding) {
  for (const auto seconds :
       {&results::StepRow::step_seconds_max, &results::StepRow::step_seconds_median, &results::StepRow::compute_seconds,
        &results::StepRow::communication_seconds, &results::StepRow::exposed_communication_seconds,
        &results::StepRow::slowest_rank_compute_seconds, &results::StepRow::slowest_rank_exposed_seconds}) {
    expect_near(told.row.*seconds, expected.row.*seconds, rounding);
  }
  const double of_step = 1e-9 + rounding / expected.row.step_seconds_max;
  EXPECT_NEAR(told.row.busy_share, expected.row.busy_share, of_step);
  EXPECT_NEAR(told.row.other_seconds, expected.row.other_seconds, of_step * expected.row.step_seconds_max);
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
    expect_near(told.simulation.seconds_by_basis.at(basis), expected.seconds_by_basis[basis], rounding);
  }
}

/// Planners are told the same.
void expect_the_same(const Evaluation& told, const results::StepRow& expected, double rounding) {
  expect_near(told.step_seconds, expected.step_seconds_max, rounding);
  EXPECT_EQ(told.peak_bytes, expected.arena_peak_bytes);
  for (std::size_t kind = 0; kind < expected.sent_bytes.size(); ++kind) {
    EXPECT_EQ(told.bytes_sent.bytes[kind], expected.sent_bytes[kind]) << "collective " << kind;
  }
}

SimulatedFew simulated(PreparedPoint point, int micro_batches) {
  point.plan = with_at_most(point.plan, micro_batches);
  SimulatedFew few{.lowered = lower_job_uncapped(point), .simulation = {}};
  few.simulation = predict(point, few.lowered, *cost_model(point, file)).simulation;
  return few;
}

/// A simulation of few of a plan's micro-batches, and of fewer.
struct Few {
  Plan plan;
  ComparedMicroBatches compared;
  SimulatedFew few, fewer;

  /// @param attempt which of those that may be compared.
  explicit Few(const PreparedPoint& point, std::size_t attempt = 0)
      : plan(point.plan),
        compared(compared_micro_batches(plan).at(attempt)),
        few(simulated(point, compared.simulated)),
        fewer(simulated(point, compared.simulated - compared.run.apart)) {}
  bool repeats() const {
    const std::optional<double> pace = pace_seconds(plan, compared, few);
    return pace && takes_longer_by(*pace, few, fewer);
  }
  /// The first rank's first one in @p step for which @p is_it(instruction).
  template <typename IsIt>
  TimelineEvent& event_of(std::int64_t step, IsIt is_it) {
    const Program& program = few.lowered.programs.front();
    const auto event = std::ranges::find_if(few.simulation.events, [&](const TimelineEvent& e) {
      return e.rank == program.rank && e.step == step && is_it(program.body[static_cast<std::size_t>(e.instruction)]);
    });
    STRATA_INVARIANT(event != few.simulation.events.end(), "no such event");
    return *event;
  }
};

struct Case {
  std::string mode;
  std::vector<std::string> words;
  int micro_batches = 19;
  int samples = 8;  ///< of a micro-batch
};

TEST(RepeatedMicroBatches, TellWhatTheWholeStepTakes) {
  int num_repeating = 0;
  const std::vector<Case> cases = {
      {"ddp", {}},
      {"ddp", {}, 19, 4},  // half of the ranks have none, and go through their micro-batches at their own pace
      {"ddp", {}, 19, 12},
      {"zero1", {}},
      {"amsp", {"strategy.p=1x1", "strategy.g=1x1", "strategy.os=8x1"}, 19, 1},
      {"zero3", {}, 19, 4},
      {"amsp", {"strategy.p=4x1", "strategy.g=4x1", "strategy.os=8x1"}, 19, 4},  // of two groups one has none
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
      {"amsp", {"strategy.p=1x1", "strategy.g=1x1", "strategy.os=8x1", "strategy.broadcast=next_forward"}},
      {"amsp", {"strategy.p=1x1", "strategy.g=8x1", "strategy.os=8x1", "strategy.broadcast=next_forward"}, 50},
      {"1f1b", {"strategy.stages=2"}, 27},
      {"1f1b", {"strategy.stages=4", "model.layers=4"}, 41},
      {"1f1b", {"strategy.stages=4", "model.layers=7"}, 50},  // over PCIe every other one is a little later
      {"1f1b", {"strategy.stages=4", "model.layers=7"}, 51},
      {"interleaved", {"strategy.stages=4", "strategy.chunks=2", "model.layers=4"}, 42},
      {"interleaved", {"strategy.stages=4", "strategy.chunks=2", "model.layers=5"}, 90},
      {"interleaved", {"strategy.stages=6", "strategy.chunks=3", "model.layers=7"}, 50},
      {"interleaved", {"strategy.stages=8", "strategy.chunks=2", "model.layers=8"}, 76},
      {"interleaved", {"strategy.stages=8", "strategy.chunks=2", "model.layers=10"}, 152},
  };
  for (const auto& [mode, words, micro_batches, samples] : cases) {
    for (const std::string cluster : {"a800-ib", "titan-pcie"}) {
      SCOPED_TRACE(fmt::format("{} {} on {}", mode, fmt::join(words, " "), cluster));
      std::vector<std::string> all = words;
      all.push_back("cluster=" + cluster);
      const PreparedPoint point = prepared(mode, all, micro_batches, samples);
      ASSERT_EQ(point.plan.schedule.micro_batches, micro_batches);
      ASSERT_FALSE(compared_micro_batches(point.plan).empty());
      const Whole expected = whole(point, micro_batches);
      // Where steps overlap, instructions begin and end at whole nanoseconds.
      const bool overlaps = point.plan.overlap.broadcast == "next_forward";
      const double rounding = overlaps ? 1e-9 * expected.most_instructions : 0.0;
      expect_the_same(PlanEvaluation(point, file)(point.plan), expected.row, rounding);
      const std::optional<RepeatedStep> told = repeated_step(point, *cost_model(point, file));
      if (!told) continue;
      ++num_repeating;
      expect_the_same(*told, expected, rounding);
    }
  }
  EXPECT_EQ(num_repeating, 2 * static_cast<int>(cases.size()));
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
  TimelineEvent& event = few.event_of(few.few.simulation.steady_step,
                                      [](const Instruction& in) { return in.is_collective() && in.micro_batch == 4; });
  event.end_ns += 5;
  EXPECT_FALSE(few.repeats());
  event.end_ns -= 5;
  EXPECT_TRUE(few.repeats());
  few.fewer.simulation.steps.front().back().step_seconds -= 5e-9;
  EXPECT_FALSE(few.repeats()) << "one class takes longer for another micro-batch";
}

/// Of eight ranks four have no samples, and wait for the others in the end.
TEST(RepeatedMicroBatches, TheSlowestRanksTakeAsLongAsTheyAddToTheStep) {
  Few few(prepared("ddp", {}, 19, 4));
  EXPECT_TRUE(few.repeats());
  for (const double off : {5e-9, -10e-9}) {
    for (SimulatedStep& of_class : few.few.simulation.steps.front()) of_class.step_seconds += off;
    EXPECT_FALSE(few.repeats()) << off;
  }
}

/// The same, but parameters are gathered from all.
TEST(RepeatedMicroBatches, RanksThatExchangeSomethingHaveOnePace) {
  const auto rank_with_none_gains_on_others = [](const std::string& mode) {
    Few few(prepared(mode, {}, 19, 4));
    EXPECT_TRUE(few.repeats()) << mode;
    const Program& without = few.few.lowered.programs.back();
    std::vector<std::int64_t> gained_ns;  // by instruction; reductions are those of the passes before them
    for (const Instruction& in : without.body) {
      gained_ns.push_back(in.phase == Phase::reduce ? gained_ns.back() : 7 * in.micro_batch);
    }
    for (TimelineEvent& event : few.few.simulation.events) {
      if (event.rank != without.rank) continue;
      event.begin_ns -= gained_ns[static_cast<std::size_t>(event.instruction)];
      event.end_ns -= gained_ns[static_cast<std::size_t>(event.instruction)];
    }
    return few.repeats();
  };
  EXPECT_TRUE(rank_with_none_gains_on_others("ddp"));
  EXPECT_FALSE(rank_with_none_gains_on_others("zero3"));
}

TEST(RepeatedMicroBatches, NothingOfTheStepBeforeReachesInToThem) {
  Few few(prepared("amsp", {"strategy.p=1x1", "strategy.g=1x1", "strategy.os=8x1", "strategy.broadcast=next_forward"}));
  ASSERT_TRUE(few.repeats());
  const int steady = few.few.simulation.steady_step;
  const TimelineEvent third = few.event_of(steady, [](const Instruction& in) { return in.micro_batch == 2; });
  TimelineEvent& before = few.event_of(steady - 1, [](const Instruction& in) { return in.phase == Phase::update; });
  const auto begin_ns = [&](int step) {
    return few.few.simulation.steps[static_cast<std::size_t>(step)].front().begin_ns;
  };
  const std::int64_t third_begins_ns = third.begin_ns + begin_ns(steady) - begin_ns(steady - 1);
  before.end_ns = third_begins_ns;
  EXPECT_TRUE(few.repeats());
  before.end_ns = third_begins_ns + 1;
  EXPECT_FALSE(few.repeats());
}

/// Broadcasts of the step before go on under the first forward passes, of a place whose other micro-batches are under
/// way beside those compared.
TEST(RepeatedMicroBatches, RepeatInPipelinesWhoseStepsOverlap) {
  constexpr int micro_batches = 50;
  PreparedPoint point = prepared("1f1b", {"strategy.stages=4", "model.layers=4"}, micro_batches);
  StateFactors states;
  states.os = Factor{2, 1};
  point.plan.operators.insert(point.plan.operators.begin(), {.match = "*", .state = states});
  point.plan.optimizer.gradients = "reduce_scatter";
  point.plan.overlap = {};
  point.plan.overlap.broadcast = "next_forward";
  verify(point.plan, point.graph);
  EXPECT_TRUE(repeated_step(point, *cost_model(point, file)));
  const Whole expected = whole(point, micro_batches);
  expect_the_same(PlanEvaluation(point, file)(point.plan), expected.row, 1e-9 * expected.most_instructions);
}

TEST(RepeatedMicroBatches, WhereFewAreLessWorkTheyAreSimulated) {
  const auto num_attempts = [](const Plan& plan) { return compared_micro_batches(plan).size(); };
  const Plan many = prepared("ddp").plan;
  EXPECT_EQ(num_attempts(many), 1);
  EXPECT_EQ(num_attempts(with_at_most(many, 13)), 1);
  EXPECT_EQ(num_attempts(with_at_most(many, 12)), 0);
  const Plan pipeline = prepared("1f1b", {"strategy.stages=2"}, 25).plan;
  EXPECT_EQ(num_attempts(pipeline), 2) << "each with the one before, or the one before that";
  EXPECT_EQ(num_attempts(with_at_most(pipeline, 24)), 0);
  const Plan rounds = prepared("interleaved", {"strategy.stages=4", "strategy.chunks=2", "model.layers=4"}, 38, 8).plan;
  EXPECT_EQ(num_attempts(rounds), 1);
  EXPECT_EQ(num_attempts(with_at_most(rounds, 36)), 0);
  EXPECT_EQ(num_attempts(prepared("gpipe", {"strategy.stages=2"}, 25).plan), 0);
}

/// Broadcasts of the step before hold up the first micro-batches, each of whose gradients are scattered as they come.
TEST(RepeatedMicroBatches, LaterOnesAreComparedWhereTheFirstDoNotRepeat) {
  constexpr int micro_batches = 50;
  const PreparedPoint point = prepared("amsp",
                                       {"strategy.p=1x1", "strategy.g=8x1", "strategy.os=8x1",
                                        "strategy.broadcast=next_forward", "cluster=titan-pcie", "model.layers=4"},
                                       micro_batches);
  ASSERT_EQ(compared_micro_batches(point.plan).size(), 3);
  EXPECT_FALSE(Few(point, 0).repeats());
  EXPECT_TRUE(Few(point, 1).repeats());
  EXPECT_TRUE(Few(point, 2).repeats());
  const std::optional<RepeatedStep> told = repeated_step(point, *cost_model(point, file));
  ASSERT_TRUE(told);
  const Whole expected = whole(point, micro_batches);
  expect_the_same(*told, expected, 1e-9 * expected.most_instructions);
}

SimulatedFew step_of(double seconds) {
  SimulatedFew few;
  few.simulation.steps = {{{.step_seconds = seconds}}};
  return few;
}

/// Sums of many events in whole nanoseconds.
TEST(RepeatedMicroBatches, LongOnesMayBeOffByAsMuchMore) {
  EXPECT_TRUE(takes_longer_by(1.0, step_of(5.000000002), step_of(4.0)));
  EXPECT_FALSE(takes_longer_by(1.0, step_of(5.000000004), step_of(4.0)));
  EXPECT_TRUE(takes_longer_by(100.0, step_of(500.000000004), step_of(400.0)));
  EXPECT_FALSE(takes_longer_by(100.0, step_of(500.00000002), step_of(400.0)));
}

}  // namespace
}  // namespace strata::predict::test_repeated_micro_batches
