/// @file
/// A writer killed at any moment leaves a file that opens, with rows that are whole and at most a second behind JSONL.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "results/columns.hpp"
#include "results/recorder.hpp"
#include "support/deep.hpp"
#include "unit/results/hdf5_reader.hpp"
#include "unit/results/sample_attempt.hpp"

namespace strata::results::test::test_sigkill {
namespace {

/// Rows as fast as they go in, with flushes far more often than in a run, so that a kill often meets one.
[[noreturn]] void write_for_ever(const std::string& folder, double flush_seconds) {
  Recorder recorder(folder, sample_facts(), {.flush_seconds = flush_seconds});
  for (std::int64_t step = 0;; ++step) {
    StepRow row = sample_step(step);
    row.unix_seconds = unix_seconds_now();
    recorder.add_step(row);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void kill_and_check(const std::string& folder, double flush_seconds, std::chrono::milliseconds delay,
                    std::int64_t& num_lost) {
  const pid_t child = ::fork();
  if (child == 0) {
    write_for_ever(folder, flush_seconds);
  }
  // The clock starts when the attempt exists: before that there is nothing to read.
  for (int i = 0; i < 2000 && !std::filesystem::exists(folder + "/1.status.json"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::this_thread::sleep_for(delay);
  const double killed_at = unix_seconds_now();
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));

  std::vector<double> times;
  std::ifstream jsonl(folder + "/1.jsonl");
  for (std::string line; std::getline(jsonl, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_discarded() && json.at("kind") == "step") {
      times.push_back(json.at("unix_seconds").get<double>());
    }
  }
  const Hdf5Reader reader(folder + "/1.h5.part");
  std::size_t num_rows = times.size() + 1;
  for (const Column<StepRow>& column : step_columns()) {
    num_rows = std::min(num_rows, static_cast<std::size_t>(reader.num_rows_written("steps/" + column.name)));
  }
  const auto steps = reader.numbers("steps/step");
  const auto losses = reader.numbers("steps/loss");
  const auto bytes = reader.numbers("steps/send_sent_bytes");
  for (std::size_t i = 0; i < num_rows; ++i) {
    const StepRow row = sample_step(static_cast<std::int64_t>(i));
    ASSERT_EQ(steps[i], static_cast<double>(i));
    ASSERT_EQ(losses[i], row.loss);
    ASSERT_EQ(bytes[i], static_cast<double>(row.sent_bytes[static_cast<std::size_t>(Collective::send)]));
  }
  if (num_rows < times.size()) {
    EXPECT_GT(times[num_rows], killed_at - 1.0) << "the first row lost was older than a second";
    num_lost += static_cast<std::int64_t>(times.size() - num_rows);
  }
}

TEST(Sigkill, EveryPartFileOpens) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> delay_ms(0, 400);
  std::int64_t num_lost = 0;
  for (int i = 0; i < (is_deep() ? 400 : 20); ++i) {
    SCOPED_TRACE(i);
    const TemporaryFolder folder;
    const double flush_seconds = i % 2 == 0 ? 0.001 : RecorderSettings().flush_seconds;
    kill_and_check(folder / "p", flush_seconds, std::chrono::milliseconds(delay_ms(random)), num_lost);
  }
  fmt::print("20 kills: {} rows were in JSONL alone, none older than a second\n", num_lost);
}

}  // namespace
}  // namespace strata::results::test::test_sigkill
