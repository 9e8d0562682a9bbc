/// @file
/// What the source would give, read once, a step early, by another thread; and what becomes of its errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "exec/read_ahead.hpp"

namespace strata::test_read_ahead {
namespace {

/// Values are functions of all that is asked for. Remembers who asked for what.
class Numbers final : public InputSource {
 public:
  struct Call {
    std::int64_t step, first_sample;
    bool is_callers;
    bool operator==(const Call&) const = default;
  };

  void load_tokens(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                   std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    called(step, first_sample);
    fill(tokens, 1, step, first_sample, num_samples);
    fill(targets, 2, step, first_sample, num_samples);
  }
  void load_images(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples, std::span<float> pixels,
                   std::span<std::int32_t> labels) override {
    called(step, first_sample);
    fill(pixels, 3, step, first_sample, num_samples);
    fill(labels, 4, step, first_sample, num_samples);
  }
  void load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                    std::span<std::int32_t> targets) override {
    called(step, first_sample);
    fill(targets, 5, step, first_sample, num_samples);
  }

  template <typename Value>
  static void fill(std::span<Value> values, int kind, std::int64_t step, std::int64_t first, std::int64_t num) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<Value>(kind + 10 * step + 1000 * first + 100'000 * num + 1'000'000 * static_cast<int>(i));
    }
  }

  std::vector<Call> calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  void wait_for_calls(std::size_t count) {
    while (calls().size() < count) std::this_thread::yield();
  }

  std::chrono::milliseconds delay{0};
  std::int64_t bad_step = -1;

 private:
  void called(std::int64_t step, std::int64_t first_sample) {
    std::this_thread::sleep_for(delay);
    const std::lock_guard lock(mutex_);
    calls_.push_back({step, first_sample, std::this_thread::get_id() == caller_});
    if (step == bad_step) throw UserError("file x, record 7");
  }

  std::mutex mutex_;
  std::vector<Call> calls_;
  std::thread::id caller_ = std::this_thread::get_id();
};

/// A step of three loads, two of them micro-batches, as one vector.
std::vector<double> step_of(InputSource& inputs, std::int64_t step) {
  std::vector<double> all;
  std::vector<std::int32_t> tokens(6), targets(6), labels(2), alone(5);
  std::vector<float> pixels(8);
  for (const std::int64_t first : {0, 4}) {
    inputs.load_tokens(step, first, 2, tokens, targets);
    all.insert(all.end(), tokens.begin(), tokens.end());
    all.insert(all.end(), targets.begin(), targets.end());
  }
  inputs.load_images(step, 8, 2, pixels, labels);
  all.insert(all.end(), pixels.begin(), pixels.end());
  all.insert(all.end(), labels.begin(), labels.end());
  inputs.load_images(step, 8, 2, pixels, {});
  all.insert(all.end(), pixels.begin(), pixels.end());
  inputs.load_targets(step, 3, 5, alone);
  all.insert(all.end(), alone.begin(), alone.end());
  return all;
}

TEST(ReadAhead, GivesWhatTheSourceGives) {
  Numbers source, reference;
  ReadAhead ahead(source);
  // With a step again, as after a restart, and with steps left out.
  for (const std::int64_t step : {0, 1, 2, 3, 3, 4, 9, 10, 7, 8}) {
    EXPECT_EQ(step_of(ahead, step), step_of(reference, step)) << step;
  }
}

TEST(ReadAhead, TheThreadReadsEachLaterStepOnceAndNoStepMore) {
  Numbers source;
  {
    ReadAhead ahead(source);
    std::vector<std::int32_t> targets(2);
    for (std::int64_t step = 5; step < 8; ++step) {
      ahead.load_targets(step, 0, 2, targets);
      source.wait_for_calls(static_cast<std::size_t>(step - 3));  // one step more has been read, and waits
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(source.calls(), (std::vector<Numbers::Call>{{5, 0, true}, {6, 0, false}, {7, 0, false}, {8, 0, false}}));
}

TEST(ReadAhead, ErrorsReachTheLoadOfTheirStep) {
  Numbers source;
  source.bad_step = 2;
  ReadAhead ahead(source);
  std::vector<std::int32_t> targets(2);
  ahead.load_targets(0, 0, 2, targets);
  ahead.load_targets(1, 0, 2, targets);
  source.wait_for_calls(3);  // the error is there
  EXPECT_THAT([&] { ahead.load_targets(2, 0, 2, targets); },
              testing::ThrowsMessage<UserError>(testing::StrEq("file x, record 7")));
  // It was of that step: others go on.
  ahead.load_targets(3, 0, 2, targets);
  std::vector<std::int32_t> expected(2);
  Numbers::fill(std::span(expected), 5, 3, 0, 2);
  EXPECT_EQ(targets, expected);
}

TEST(ReadAhead, AStepThatNeverComesIsNotHeardOf) {
  Numbers source;
  source.bad_step = 1;
  ReadAhead ahead(source);
  std::vector<std::int32_t> targets(2);
  ahead.load_targets(0, 0, 2, targets);
  source.wait_for_calls(2);
}

TEST(ReadAhead, ReadingIsHiddenOnceAStepIsForeseen) {
  using std::chrono::milliseconds;
  Numbers source;
  source.delay = milliseconds(100);
  ReadAhead ahead(source);
  std::vector<std::int32_t> targets(2);
  const auto seconds_of = [&](std::int64_t step) {
    const auto begin = std::chrono::steady_clock::now();
    ahead.load_targets(step, 0, 2, targets);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  EXPECT_GE(seconds_of(0), 0.1) << "nobody knew";
  EXPECT_GE(seconds_of(1), 0.05) << "at once: the thread has just begun";
  source.wait_for_calls(3);
  EXPECT_LT(seconds_of(2), 0.1);
}

/// Values of a sample follow from its own number alone.
class Samples final : public InputSource {
 public:
  void load_tokens(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                   std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    fill(tokens, 1, step, first_sample, num_samples);
    fill(targets, 2, step, first_sample, num_samples);
  }
  void load_images(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples, std::span<float> pixels,
                   std::span<std::int32_t> labels) override {
    if (first_sample <= bad_sample && bad_sample < first_sample + num_samples && step == bad_step) {
      throw UserError("file x, record 7");
    }
    fill(pixels, 3, step, first_sample, num_samples);
    fill(labels, 4, step, first_sample, num_samples);
  }
  void load_targets(std::int64_t step, std::int64_t first_sample, std::int64_t num_samples,
                    std::span<std::int32_t> targets) override {
    fill(targets, 5, step, first_sample, num_samples);
  }
  std::int64_t bad_step = -1, bad_sample = -1;

 private:
  template <typename Value>
  void fill(std::span<Value> values, int kind, std::int64_t step, std::int64_t first, std::int64_t num) {
    const std::int64_t size = static_cast<std::int64_t>(values.size()) / num;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) {
      values[static_cast<std::size_t>(i)] =
          static_cast<Value>(kind + 10 * step + 1000 * (first + i / size) + 100'000 * (i % size));
    }
  }
};

TEST(ReadAhead, SeveralThreadsReadALoadsSamplesInParts) {
  for (const int num_threads : {1, 2, 3, 16}) {
    Samples source, reference;
    ReadAhead ahead(source, num_threads);
    std::vector<float> pixels(7 * 5), expected(7 * 5);
    std::vector<std::int32_t> labels(7), expected_labels(7), tokens(21), targets(21), expected_tokens(21);
    for (std::int64_t step = 0; step < 5; ++step) {
      ahead.load_images(step, 3, 7, pixels, labels);
      reference.load_images(step, 3, 7, expected, expected_labels);
      EXPECT_EQ(pixels, expected) << num_threads;
      EXPECT_EQ(labels, expected_labels) << num_threads;
      ahead.load_tokens(step, 10, 7, tokens, targets);
      reference.load_tokens(step, 10, 7, expected_tokens, {});
      EXPECT_EQ(tokens, expected_tokens) << num_threads;
      ahead.load_images(step, 20, 2, std::span(pixels).first(4), {});
      reference.load_images(step, 20, 2, std::span(expected).first(4), {});
      EXPECT_EQ(pixels, expected) << num_threads;
    }
  }
}

TEST(ReadAhead, APartThatCannotBeReadIsAFailureOfTheLoad) {
  Samples source;
  source.bad_step = 1;
  source.bad_sample = 4;
  ReadAhead ahead(source, 3);
  std::vector<float> pixels(6);
  ahead.load_images(0, 0, 6, pixels, {});
  EXPECT_THAT([&] { ahead.load_images(1, 0, 6, pixels, {}); },
              testing::ThrowsMessage<UserError>(testing::StrEq("file x, record 7")));
  ahead.load_images(2, 0, 6, pixels, {});
  EXPECT_EQ(pixels.back(), 3 + 20 + 5000);
}

}  // namespace
}  // namespace strata::test_read_ahead
