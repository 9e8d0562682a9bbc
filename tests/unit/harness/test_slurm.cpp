/// @file
/// What Slurm prints is read as Slurm means it, and what a caller's environment holds changes no submission.

#include <gmock/gmock.h>

#include "harness/slurm.hpp"

namespace strata::harness::test_slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(TaskList, RangesStridesAndThrottle) {
  EXPECT_THAT(parse_task_list("2-5%2"), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(parse_task_list("0,3-4,9"), ElementsAre(0, 3, 4, 9));
  EXPECT_THAT(parse_task_list("0-8:4"), ElementsAre(0, 4, 8));
  EXPECT_THAT(parse_task_list(""), IsEmpty());
}

TEST(Queue, WaitingArraysStandInOneLine) {
  EXPECT_THAT(parse_queue("8_[2-3,7%2] PENDING Resources\n8_0 RUNNING None\n8_1 COMPLETING NonZeroExitCode\n"
                          "9 RUNNING None\n12_4 PENDING (Nodes required for job are DOWN)\n"),
              ElementsAre(QueuedTask{"8", 2, "PENDING", "Resources"}, QueuedTask{"8", 3, "PENDING", "Resources"},
                          QueuedTask{"8", 7, "PENDING", "Resources"}, QueuedTask{"8", 0, "RUNNING", "None"},
                          QueuedTask{"8", 1, "COMPLETING", "NonZeroExitCode"},
                          QueuedTask{"12", 4, "PENDING", "(Nodes required for job are DOWN)"}));
}

TEST(Queue, JobsAreKnownByTheirComments) {
  EXPECT_THAT(parse_comments("17 strata-0123\n18 (null)\n19\n20 two words\n21 strata-0123\n"),
              UnorderedElementsAre(Pair("strata-0123", "17"), Pair("(null)", "18"), Pair("two", "20")));
}

TEST(SubmissionEnvironment, LeavesOutWhatChangesAJob) {
  EXPECT_THAT(submission_environment({"PATH=/bin", "SBATCH_TIMELIMIT=1", "SBATCH_PARTITION=x", "SLURM_JOB_ID=4",
                                      "SLURM_CONF=/etc/slurm.conf", "SLURMD_NODENAME=n1", "HOME=/root"}),
              ElementsAre("PATH=/bin", "SLURM_CONF=/etc/slurm.conf", "HOME=/root"));
}

TEST(TaskList, NoListIsEndless) {
  EXPECT_EQ(parse_task_list("5-9223372036854775807:100000").size(), 1U);
  std::string lines;
  for (int line = 0; line < 1000; ++line) lines += "17_[0-99999999999] PENDING None\n";
  EXPECT_EQ(parse_queue(lines).size(), 200'000U);
  EXPECT_TRUE(parse_task_list("9223372036854775806-9223372036854775807").empty());
  EXPECT_TRUE(parse_task_list("1-5:0").empty());
}

}  // namespace
}  // namespace strata::harness::test_slurm
