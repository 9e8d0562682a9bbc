/// @file
/// What a sweep has come to, and exactly what is submitted again.

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "harness/sweep_state.hpp"
#include "unit/data/temporary_folder.hpp"
#include "unit/harness/sample_manifest.hpp"

namespace strata::harness::test_sweep_state {
namespace {

using data::TemporaryFolder;
using data::user_error;
using test::put;
using test::put_attempt;
using test::put_record;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Sweep : public ::testing::Test {
 protected:
  Sweep() : manifest(test::sample_manifest(folder.path("results"))) { put(manifest); }

  SweepState state(const QueueView& queue = {}) const { return sweep_state(experiment_folder(manifest), queue); }
  std::vector<std::string> states(const QueueView& queue = {}) const {
    std::vector<std::string> words;
    for (const Unit& unit : state(queue).units) words.push_back(unit.state());
    return words;
  }
  void submit(const std::string& job_id) const { std::ofstream(array_file(manifest, ".jobid")) << job_id << "\n"; }

  TemporaryFolder folder;
  Manifest manifest;
};

TEST_F(Sweep, NothingSubmittedIsSaid) {
  EXPECT_THAT(user_error([&] { sweep_state(folder.path("elsewhere"), {}); }), HasSubstr("strata submit"));
}

TEST_F(Sweep, WithoutAJobEverythingIsMissing) {
  EXPECT_THAT(states(), ElementsAre("missing", "missing", "missing", "missing", "missing"));
  EXPECT_EQ(summary_line(state()), "sweep: 3 points, 5 launches: 5 missing");
}

TEST_F(Sweep, TheQueueSaysWhatIsPending) {
  submit("17");
  EXPECT_THAT(states({.known = true, .tasks = {{"17", 0, "PENDING", ""}}, .lost_nodes = {}}),
              ElementsAre("pending", "pending", "pending", "pending", "missing"));
  // Nobody can be asked: what was submitted and has not ended is waited for.
  EXPECT_THAT(states(), ElementsAre("pending", "pending", "pending", "pending", "pending"));
}

TEST_F(Sweep, EachLaunchHasItsOwnAttempts) {
  put_attempt(manifest, 0, 0, 1, "ok");
  put_attempt(manifest, 0, 3, 2, "hang");  // the same point in the next block
  put_attempt(manifest, 0, 1, 1, "timeout");
  put_attempt(manifest, 1, 0, 1, "oom", "17_1.0");  // which its experiment expects
  EXPECT_THAT(states(), ElementsAre("ok", "timeout", "missing", "hang", "oom"));
  EXPECT_EQ(summary_line(state()), "sweep: 3 points, 5 launches: 1 ok, 1 hang, 1 missing, 1 oom (expected), 1 timeout");
  EXPECT_THAT(to_table(state(), false), HasSubstr("train.seed=3"));
  EXPECT_THAT(to_table(state(), false), Not(HasSubstr("\033")));
  EXPECT_THAT(to_table(state(), true), AllOf(HasSubstr("\033[32mok"), HasSubstr("\033[31mtimeout"),
                                             HasSubstr("\033[31mmissing"), HasSubstr("\033[32moom")));
}

TEST_F(Sweep, WhatIsWrongIsSaidOnceAReason) {
  put_attempt(manifest, 0, 0, 1, "ok");
  put_attempt(manifest, 0, 3, 2, "hang");
  put_attempt(manifest, 0, 1, 1, "timeout");
  const std::string text = reasons(state(), false);
  EXPECT_THAT(text, HasSubstr("hang         1  so it ended, point "));
  EXPECT_THAT(text, HasSubstr("timeout      1  so it ended, point "));
  EXPECT_THAT(text, HasSubstr("missing      2  nobody runs it: `strata resume` submits it, first point "));
  EXPECT_THAT(text, ::testing::StartsWith("missing")) << "the most frequent one first";
  EXPECT_THAT(reasons(state(), true), HasSubstr("\033[31mmissing\033[0m"));
}

TEST(SweepState, AMessageOfSeveralLinesStaysInItsOwn) {
  SweepState state;
  state.units.push_back({.point_id = "a",
                         .progress = Progress::ended,
                         .status = results::Status::communication_error,
                         .message = "MPI_Isend failed:\n  error\tstack\033[31m\n"});
  EXPECT_THAT(to_table(state, false), ::testing::EndsWith("  MPI_Isend failed: error stack [31m\n"));
  EXPECT_THAT(reasons(state, false), HasSubstr("  MPI_Isend failed: error stack [31m, point a\n"));
}

TEST(SweepState, TenThousandPointsFitAScreen) {
  SweepState state;
  for (int i = 0; i < 10'000; ++i) {
    Unit unit{.point_id = fmt::format("{:012x}", i), .progress = Progress::ended, .status = results::Status::ok};
    if (i % 4 == 1) {
      unit.status = results::Status::oom;
      unit.message = fmt::format("a rank needs {}.5 GiB of 2.000 GiB", i);  // one reason, however much is missing
    } else if (i % 100 == 2) {
      unit.status = results::Status::refused;
      unit.message = fmt::format("mode {} cannot", static_cast<char>('a' + i / 100 % 26));
    } else if (i % 4 == 3) {
      unit.progress = Progress::pending;
    }
    state.units.push_back(unit);
  }
  const std::string text = reasons(state, false);
  EXPECT_EQ(std::ranges::count(text, '\n'), 21) << text;
  EXPECT_THAT(text,
              ::testing::StartsWith("oom       2500  a rank needs 1.5 GiB of 2.000 GiB, first point 000000000001\n"));
  EXPECT_THAT(text, HasSubstr("and 7 more reasons; --all lists every point"));
  EXPECT_THAT(text, Not(HasSubstr("pending")));
  EXPECT_EQ(reasons({}, true), "");
}

TEST_F(Sweep, AnAttemptThatIsGoodIsNeverOverruled) {
  put_attempt(manifest, 1, 0, 1, "ok");
  put_attempt(manifest, 1, 0, 2, "killed");
  EXPECT_EQ(states().back(), "ok");
  EXPECT_EQ(state().units.back().num_attempts, 2);
  Manifest again = manifest;
  again.submission = 4;
  put(again);
  put_attempt(again, 1, 0, 3, "hang");
  EXPECT_EQ(states().back(), "ok");
}

TEST_F(Sweep, ALaterSubmissionMendsAnEarlierFailure) {
  put_attempt(manifest, 1, 0, 1, "killed");
  Manifest again = manifest;
  again.submission = 4;
  again.job.tasks = {manifest.job.tasks[1]};
  put(again);
  EXPECT_EQ(states().back(), "killed");
  put_attempt(again, 0, 0, 2, "ok");
  EXPECT_EQ(states().back(), "ok");
}

TEST_F(Sweep, ALaunchThatLeftNothingIsNamedByItsExitCode) {
  put_record(manifest, 1, "t start 17_1.0 n1\nt launch 3/1.1.0\nt exit 3/1.1.0 2\nt end\n");
  const SweepState now = state();
  EXPECT_EQ(now.units.back().state(), "refused");
  EXPECT_THAT(now.units.back().message, HasSubstr("exit code 2"));
}

TEST_F(Sweep, ALaunchThatLeftNothingWasToldToEnd) {
  const std::string told = "t start 17_1.0 n[1-2]\nt launch 3/1.1.0\nt signal {}\nt exit 3/1.1.0 138\nt end\n";
  put_record(manifest, 1, fmt::format(fmt::runtime(told), "USR1"));
  EXPECT_EQ(states().back(), "timeout");
  put_record(manifest, 1, fmt::format(fmt::runtime(told), "TERM"));
  EXPECT_EQ(states().back(), "preempted");
  EXPECT_THAT(launches_left(manifest, 1, read_job_record(manifest, 1)), ElementsAre(0));
  put_record(manifest, 1, fmt::format(fmt::runtime(told), "TERM\nt lost n2"));
  EXPECT_EQ(states().back(), "node_failure");
  put_record(manifest, 1, fmt::format(fmt::runtime(told), "HUP"));
  EXPECT_EQ(states().back(), "killed");
  EXPECT_THAT(launches_left(manifest, 1, read_job_record(manifest, 1)), IsEmpty());
}

TEST_F(Sweep, AJobThatWasTakenAwayAndWaitsIsPending) {
  submit("17");
  put_record(manifest, 1, "t start 17_1.0 n[1-2]\nt launch 3/1.1.0\nt signal TERM\n");
  put_attempt(manifest, 1, 0, 1, "killed", "17_1.0");
  const QueueView waits{.known = true, .tasks = {{"17", 1, "PENDING", "BeginTime"}}, .lost_nodes = {}};
  EXPECT_EQ(states(waits).back(), "pending");
  const QueueView gone{.known = true, .tasks = {}, .lost_nodes = {}};
  EXPECT_EQ(states(gone).back(), "preempted");
  const QueueView lost{.known = true, .tasks = {}, .lost_nodes = {"n2"}};
  EXPECT_EQ(states(lost).back(), "node_failure");
}

TEST_F(Sweep, WhatAnAttemptCouldNotSayIsRecorded) {
  put_record(manifest, 1, "t start 17_1.0 n[1-2]\nt launch 3/1.1.0\nt signal TERM\nt lost n2\n");
  put_attempt(manifest, 1, 0, 1, "preempted", "17_1.0");
  const auto recorded = [&] {
    record_endings(experiment_folder(manifest), state());
    std::ifstream file(experiment_folder(manifest) / "submissions" / "endings.json");
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  EXPECT_THAT(recorded(), HasSubstr("node_failure"));
  // The node is up again, and the record of the job is gone.
  put_record(manifest, 1, "t start 17_1.0 n[1-2]\nt launch 3/1.1.0\nt signal USR1\n");
  EXPECT_EQ(states().back(), "timeout");
  EXPECT_THAT(recorded(), HasSubstr("node_failure"));
}

TEST_F(Sweep, ResumeTakesExactlyWhatIsNotGood) {
  for (std::size_t l = 0; l < 4; ++l) put_attempt(manifest, 0, l, static_cast<int>(l) + 1, "ok");
  EXPECT_THAT(arrays_to_resume(state(), {}), ElementsAre(JobArray{manifest.job.geometry, {manifest.job.tasks[1]}, 2}));
  EXPECT_THAT(arrays_to_resume(state(), {"hang"}), IsEmpty());
  put_attempt(manifest, 1, 0, 1, "oom");
  EXPECT_THAT(arrays_to_resume(state(), {}), IsEmpty());
}

TEST_F(Sweep, HalfABlockIsRepeatedWhole) {
  put_attempt(manifest, 0, 0, 1, "ok");
  put_attempt(manifest, 0, 1, 2, "hang");
  put_attempt(manifest, 0, 2, 3, "ok");
  put_attempt(manifest, 0, 3, 4, "ok");
  const std::vector<JobArray> arrays = arrays_to_resume(state(), {"hang"});
  ASSERT_EQ(arrays.size(), 1U);
  ASSERT_EQ(arrays[0].tasks.size(), 1U);
  EXPECT_THAT(arrays[0].tasks[0].launches,
              ElementsAre(manifest.job.tasks[0].launches[0], manifest.job.tasks[0].launches[1]));
  EXPECT_EQ(arrays[0].tasks[0].block_seed, 7);
}

TEST_F(Sweep, ARestartedJobRunsWhatItHasNotEnded) {
  const std::string taken_away =
      "t start 17_0.0 n[1-2]\nt launch 3/1.0.0\nt exit 3/1.0.0 0\nt launch 3/1.0.1\nt exit 3/1.0.1 1\n"
      "t launch 3/1.0.2\nt start 17_0.1 n[1-2]\n";
  put_record(manifest, 0, taken_away);
  put_attempt(manifest, 0, 0, 1, "ok");
  put_attempt(manifest, 0, 1, 2, "oom");
  put_attempt(manifest, 0, 2, 3, "killed");
  EXPECT_THAT(launches_left(manifest, 0, parse_job_record(taken_away)), ElementsAre(2, 3));
}

}  // namespace
}  // namespace strata::harness::test_sweep_state
