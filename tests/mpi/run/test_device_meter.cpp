/// @file
/// Steps of several ranks → a row: who speaks for all; of their devices' counters what is summed, what counts once, and
/// what is unknown for all where it is for one.

#include <gmock/gmock.h>

#include <cmath>
#include <memory>

#include "run/device_meter.hpp"
#include "run/step_exchange.hpp"

namespace strata::run::test_device_meter {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Of device @p number: power and clocks follow from it, and from one reading to the next it takes number + 1 joules.
class CountingMonitor final : public DeviceMonitor {
 public:
  explicit CountingMonitor(int number, bool lacks_power = false) : number_(number) {
    if (lacks_power) unmeasured_["power_watts"] = "Not Supported";
  }
  std::string device_id() const override { return std::to_string(number_); }
  std::string driver_version() const override { return "1.2"; }
  DeviceLimits limits() const override {
    return {.max_sm_clock_hertz = 100.0 + number_,
            .max_memory_clock_hertz = 200.0,
            .power_limit_watts = unmeasured_.empty() ? 700.0 : DeviceReading::unknown};
  }
  DeviceReading read() override {
    energy_joules_ += 0.5 * (number_ + 1);
    return {.energy_joules = 2.0 * energy_joules_,
            .power_watts = unmeasured_.empty() ? 10.0 * (number_ + 1) : DeviceReading::unknown,
            .sm_clock_hertz = 50.0 - number_,
            .memory_clock_hertz = 60.0,
            .clock_event_reasons = number_ == 0 ? 4.0 : 1.0 + (1 << 20),
            .device_memory_used_bytes = 1000.0 * (number_ + 1),
            .device_memory_taken_bytes = 100.0 * (number_ + 1)};
  }
  const std::map<std::string, std::string>& unmeasured() const override { return unmeasured_; }

 private:
  int number_;
  double energy_joules_ = 50.0;
  std::map<std::string, std::string> unmeasured_;
};

class Devices : public testing::Test {
 protected:
  /// The row of one step; its facts are left in facts.
  results::StepRow row(std::unique_ptr<DeviceMonitor> monitor) {
    DeviceMeter meter(world, std::move(monitor));
    meter.describe(facts);
    meter.begin_window();
    RankStep step;
    step.device = meter.end_window(1);
    step.num_sharers = meter.num_sharers();
    const auto rows = exchange_steps(world, {step}, {}, {}, 0);
    return world.rank() == 0 ? rows.at(0) : results::StepRow{};
  }
  comm::World world;
  results::AttemptFacts facts;
};

TEST_F(Devices, EachRankHasItsOwn) {
  const int n = world.size();
  const results::StepRow r = row(std::make_unique<CountingMonitor>(world.rank()));
  EXPECT_EQ(facts.ranks_per_device, 1);
  EXPECT_EQ(facts.max_sm_clock_hertz, 100.0);
  EXPECT_EQ(facts.power_limit_watts, 700.0);
  EXPECT_THAT(facts.unmeasured, IsEmpty());
  EXPECT_EQ(facts.library_versions.at("device_driver"), "1.2");
  if (world.rank() != 0) return;
  EXPECT_EQ(r.energy_joules, n * (n + 1) / 2);
  EXPECT_EQ(r.power_watts, 10 * n * (n + 1) / 2);
  EXPECT_EQ(r.sm_clock_hertz, 50 - (n - 1));
  EXPECT_EQ(r.memory_clock_hertz, 60);
  EXPECT_EQ(r.clock_event_reasons, n == 1 ? 4.0 : 5.0 + (1 << 20));
  EXPECT_EQ(r.device_memory_used_bytes, 1000 * n);
  EXPECT_EQ(r.device_memory_taken_bytes, 100 * n);
}

TEST_F(Devices, StepsOfAWindowShareItsEnergy) {
  DeviceMeter meter(world, std::make_unique<CountingMonitor>(3));
  meter.begin_window();
  const DeviceReading reading = meter.end_window(8);
  EXPECT_DOUBLE_EQ(reading.energy_joules, 0.5);
  EXPECT_DOUBLE_EQ(reading.power_watts, 40.0);
}

TEST_F(Devices, OneThatRanksShareCountsOnce) {
  const results::StepRow r = row(std::make_unique<CountingMonitor>(0));
  EXPECT_EQ(facts.ranks_per_device, world.size());
  if (world.size() > 1) {
    EXPECT_THAT(facts.unmeasured,
                ElementsAre("device_memory_taken_bytes: " + std::to_string(world.size()) + " ranks share the device"));
  }
  if (world.rank() != 0) return;
  EXPECT_DOUBLE_EQ(r.energy_joules, 1.0);
  EXPECT_DOUBLE_EQ(r.power_watts, 10.0);
  EXPECT_EQ(r.device_memory_used_bytes, 1000.0);
  EXPECT_EQ(std::isnan(r.device_memory_taken_bytes), world.size() > 1);
}

TEST_F(Devices, WhatOneLacksIsUnknownForAll) {
  const int last = world.size() - 1;
  const results::StepRow r = row(std::make_unique<CountingMonitor>(world.rank(), world.rank() == last));
  EXPECT_THAT(facts.unmeasured, ElementsAre("power_watts: Not Supported"));
  EXPECT_TRUE(std::isnan(facts.power_limit_watts));
  EXPECT_EQ(facts.max_memory_clock_hertz, 200.0);
  if (world.rank() != 0) return;
  EXPECT_TRUE(std::isnan(r.power_watts));
  EXPECT_FALSE(std::isnan(r.energy_joules));
}

TEST_F(Devices, ABackendWithoutCountersSaysNothing) {
  const results::StepRow r = row(nullptr);
  EXPECT_EQ(facts.ranks_per_device, 0);
  EXPECT_TRUE(std::isnan(facts.max_sm_clock_hertz));
  EXPECT_TRUE(facts.library_versions.empty());
  EXPECT_TRUE(std::isnan(r.energy_joules));
  EXPECT_TRUE(std::isnan(r.device_memory_used_bytes));
  EXPECT_TRUE(std::isnan(r.clock_event_reasons));
}

/// Steps that fill or drain ranks are neither measured nor warm-up.
TEST(ExchangedSteps, ThoseThatFillAndDrainAreMarked) {
  const comm::World world;
  const std::vector<RankStep> steps = {{.step = 0, .fills = true},
                                       {.step = 1},
                                       {.step = 2},
                                       {.step = 3, .drains = true},
                                       {.step = 4, .fills = true, .drains = true}};
  const auto rows = exchange_steps(world, steps, {.num_samples = 12, .num_warmup_steps = 2}, MemoryPeak{}, 0);
  std::vector<std::string_view> phases;
  for (const results::StepRow& row : rows) phases.push_back(to_string(row.phase));
  if (world.rank() != 0) return;
  EXPECT_THAT(phases, testing::ElementsAre("fill", "warmup", "measured", "drain", "fill"));
}

/// A step is over when its slowest rank is; parts of it are the most that any rank had; the loss
/// is the sum of the ranks' parts.
TEST(ExchangedSteps, TheSlowestRankAndTheFullestSpeakForAll) {
  const comm::World world;
  const int n = world.size(), me = world.rank();
  std::vector<RankStep> steps;
  for (const int step : {6, 7}) {
    RankStep mine{.step = step, .unix_seconds = 100.0 + me, .learning_rate = 0.5};
    // The last rank is the slowest; the first computes longest and waits least.
    mine.measured = {.step_seconds = 1.0 * step + me,
                     .compute_seconds = 4.0 - 0.5 * me,
                     .communication_seconds = 1.0 + me,
                     .exposed_seconds = 0.25 * me,
                     .bytes_sent = {},
                     .loss = 2.0F + static_cast<float>(me),
                     .gradient_norm = 3.0F};
    mine.measured.bytes_sent[static_cast<std::size_t>(Collective::all_gather)] = 10 * (n - me);
    mine.outside_arena_bytes = 1000 + me;
    mine.measured.input_seconds = 0.125 * (1 + me);
    steps.push_back(mine);
  }
  MemoryPeak peak;
  peak.bytes[static_cast<int>(Category::activation)] = 70 + me;
  const auto rows = exchange_steps(world, steps, {.num_samples = 12, .num_warmup_steps = 7}, peak, 500 + me);
  if (me != 0) {
    EXPECT_THAT(rows, IsEmpty());
    return;
  }
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].phase, results::StepPhase::warmup);
  EXPECT_EQ(rows[1].phase, results::StepPhase::measured);
  const results::StepRow& row = rows[1];
  EXPECT_EQ(row.step, 7);
  EXPECT_DOUBLE_EQ(row.step_seconds_max, 7.0 + n - 1);
  EXPECT_DOUBLE_EQ(row.step_seconds_median, 7.0 + 0.5 * (n - 1));
  EXPECT_DOUBLE_EQ(row.compute_seconds, 4.0);
  EXPECT_DOUBLE_EQ(row.communication_seconds, n);
  EXPECT_DOUBLE_EQ(row.exposed_communication_seconds, 0.25 * (n - 1));
  EXPECT_DOUBLE_EQ(row.slowest_rank_compute_seconds, 4.0 - 0.5 * (n - 1));
  EXPECT_DOUBLE_EQ(row.slowest_rank_exposed_seconds, 0.25 * (n - 1));
  EXPECT_DOUBLE_EQ(row.other_seconds, (7.0 + n - 1) - (4.0 - 0.5 * (n - 1)) - 0.25 * (n - 1)) << "of the slowest";
  double busy = 0.0;  // of rank r: 4 - r/2 of 7 + r seconds
  for (int r = 0; r < n; ++r) busy += (4.0 - 0.5 * r) / (7.0 + r) / n;
  EXPECT_NEAR(row.busy_share, busy, 1e-12);
  EXPECT_DOUBLE_EQ(row.input_seconds, 0.125 * n);
  EXPECT_EQ(row.loss, 2.0 * n + 0.5 * n * (n - 1));
  EXPECT_EQ(row.num_samples, 12);
  EXPECT_EQ(row.sent_bytes[static_cast<std::size_t>(Collective::all_gather)], 10 * n);
  EXPECT_EQ(row.arena_peak_bytes, 500 + n - 1);
  EXPECT_EQ(row.activation_bytes, 70 + n - 1) << "of the rank whose arena is fullest";
  EXPECT_EQ(row.outside_arena_peak_bytes, 1000 + n - 1);
}

}  // namespace
}  // namespace strata::run::test_device_meter
