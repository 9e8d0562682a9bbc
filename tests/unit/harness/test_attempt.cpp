/// @file
/// How an attempt ended, from what it said itself and from what its job noted.

#include <gmock/gmock.h>

#include "harness/attempt.hpp"

namespace strata::harness::test_attempt {
namespace {

using results::Status;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Attempt attempt_that_said(Status status, double heartbeat_age_seconds = 1000.0) {
  Attempt attempt;
  attempt.number = 1;
  attempt.file.status = status;
  attempt.file.message = "its own words";
  attempt.heartbeat_age_seconds = heartbeat_age_seconds;
  return attempt;
}

TEST(JobRecord, RunsWithTheirEvents) {
  const std::vector<JobRun> runs = parse_job_record(
      "t start 17_0.0 n[1-2]\nt launch 1/0.0.0\nt exit 1/0.0.0 1\nt launch 1/0.0.1\nt signal TERM\nt lost n2\n"
      "t start 17_0.1 n[3-4]\nt launch 1/0.0.1\nt exit 1/0.0.1 0\nt end\nt exit 1/0.0");
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].job, "17_0.0");
  EXPECT_EQ(runs[0].nodes, "n[1-2]");
  EXPECT_THAT(runs[0].lost_nodes, ElementsAre("n2"));
  EXPECT_THAT(runs[0].signals, ElementsAre("TERM"));
  EXPECT_THAT(runs[0].launched, ElementsAre("1/0.0.0", "1/0.0.1"));
  EXPECT_EQ(runs[0].exit_codes.at("1/0.0.0"), 1);
  EXPECT_FALSE(runs[0].ended);
  EXPECT_TRUE(runs[0].was_taken_away());
  EXPECT_TRUE(runs[1].ended);
  EXPECT_FALSE(runs[1].was_taken_away());
  EXPECT_EQ(runs[1].exit_codes.size(), 1U);
}

TEST(Verdict, WhatTheAttemptNamedStands) {
  for (const Status status : {Status::ok, Status::oom, Status::refused, Status::timeout, Status::wrong_answer,
                              Status::launcher_mismatch, Status::bug, Status::recording_error, Status::diverged}) {
    JobRun run;
    run.signals = {"TERM"};
    run.lost_nodes = {"n1"};
    const Verdict v = verdict(attempt_that_said(status), {.run = &run, .started_again = true, .alive = false});
    EXPECT_EQ(v.status, status);
    EXPECT_EQ(v.message, "its own words");
  }
}

TEST(Verdict, AHeartbeatOrAJobThatRunsMeansRunning) {
  EXPECT_EQ(verdict(attempt_that_said(Status::running, 2.0), {}).status, Status::running);
  EXPECT_EQ(verdict(attempt_that_said(Status::running, 2000.0), {.alive = true}).status, Status::running);
  EXPECT_EQ(verdict(attempt_that_said(Status::running, 2.0), {.alive = false}).status, Status::running);
  EXPECT_EQ(verdict(attempt_that_said(Status::running, 20.0), {}).status, Status::running);
  EXPECT_EQ(verdict(attempt_that_said(Status::running, 20.0), {.alive = false}).status, Status::killed);
  const Verdict silent = verdict(attempt_that_said(Status::running, 2000.0), {.alive = false});
  EXPECT_EQ(silent.status, Status::killed);
  EXPECT_THAT(silent.message, HasSubstr("no sign of life since 1970-01-01T00:00:00"));
}

TEST(Verdict, TheJobSaysWhyItEndedWithoutAWord) {
  JobRun run;
  for (const Status said : {Status::killed, Status::running}) {
    EXPECT_EQ(verdict(attempt_that_said(said), {.run = &run}).status, Status::killed);
    EXPECT_EQ(verdict(attempt_that_said(said), {.run = &run, .started_again = true}).status, Status::preempted);
    run.signals = {"TERM"};
    EXPECT_EQ(verdict(attempt_that_said(said), {.run = &run}).status, Status::preempted);
    run.signals = {"USR1", "TERM"};
    EXPECT_EQ(verdict(attempt_that_said(said), {.run = &run}).status, Status::timeout);
    run.signals.clear();
  }
}

TEST(Verdict, ATermAtTheTimeLimitIsNoPreemption) {
  JobRun run;
  run.signals = {"USR1", "TERM"};
  EXPECT_EQ(verdict(attempt_that_said(Status::preempted), {.run = &run}).status, Status::timeout);
  // Slurm does not start a job again that had reached its limit.
  EXPECT_EQ(verdict(attempt_that_said(Status::preempted), {.run = &run, .started_again = true}).status,
            Status::preempted);
}

TEST(Verdict, WhatEndedBeforeItsJobWasNotTakenAway) {
  JobRun run;
  Attempt attempt = attempt_that_said(Status::killed);
  attempt.file.origin.launch = "1/0.0.0";
  run.exit_codes["1/0.0.0"] = 137;
  EXPECT_EQ(verdict(attempt, {.run = &run, .started_again = true}).status, Status::killed);
}

TEST(Verdict, ALostNodeExplainsWhatItCauses) {
  JobRun run;
  run.lost_nodes = {"n3"};
  for (const Status said :
       {Status::killed, Status::running, Status::preempted, Status::hang, Status::communication_error}) {
    const Verdict v = verdict(attempt_that_said(said), {.run = &run, .started_again = true});
    EXPECT_EQ(v.status, Status::node_failure);
    EXPECT_THAT(v.message, HasSubstr("n3"));
  }
  EXPECT_EQ(verdict(attempt_that_said(Status::killed), {.lost_nodes = {"n1"}}).status, Status::node_failure);
}

}  // namespace
}  // namespace strata::harness::test_attempt
