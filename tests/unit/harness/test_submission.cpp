/// @file
/// What a submission says before anything is queued.

#include <gmock/gmock.h>

#include <filesystem>

#include "base/read_file.hpp"
#include "harness/submission.hpp"
#include "unit/data/temporary_folder.hpp"

namespace strata::harness::test_submission {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Two geometries, of one and two nodes: two tasks of one launch, and one task of two.
std::vector<JobArray> arrays() {
  const auto geometry = [](std::int64_t nodes) {
    return JobGeometry{.nodes = nodes, .ranks_per_node = 4, .time_limit_minutes = 10};
  };
  return {{.geometry = geometry(1), .tasks = {{{{"aaaaaaaaaaaa", -1, 0}}, 0}, {{{"bbbbbbbbbbbb", -1, 0}}, 0}}},
          {.geometry = geometry(2), .tasks = {{{{"cccccccccccc", 0, 0}, {"dddddddddddd", 0, 1}}, 1}}}};
}

SubmissionRequest request(const std::string& results = "/results") {
  SubmissionRequest r;
  r.experiment_name = "sweep";
  r.experiment_file = "/sweep.toml";
  r.results_folder = results;
  r.strata_binary = "/strata";
  r.site_name_or_path = "local";
  return r;
}

TEST(Submission, NothingIsPredictedWhereNobodyPlanned) {
  EXPECT_THAT(to_table(make_submission(request(), arrays(), 1)),
              AllOf(HasSubstr("time limit  node-hours\n"), Not(HasSubstr("predicted"))));
}

TEST(Submission, PredictedStepsStandBesideTheTimeLimit) {
  SubmissionRequest r = request();
  r.has_predictions = true;
  r.steps_seconds = {{"aaaaaaaaaaaa", 90.0}, {"bbbbbbbbbbbb", 30.0}, {"cccccccccccc", 420.0}, {"dddddddddddd", 300.0}};
  const std::string table = to_table(make_submission(r, arrays(), 1));
  EXPECT_THAT(table, HasSubstr("node-hours  longest steps\n"));
  EXPECT_THAT(table, HasSubstr("10 min      0.33        90.0 s\n"));
  EXPECT_THAT(table, HasSubstr("10 min      0.33        12.0 min\n"));
  // (90 + 30) s on one node and 720 s on two.
  EXPECT_THAT(table, HasSubstr("predicted: steps take 0.43 node-hours at most, beside the start of each launch\n"));
  EXPECT_THAT(
      table, HasSubstr("1 of 3 tasks are predicted to exceed their time limit, by as much as 2.0 min beyond 10 min\n"));
}

TEST(Submission, OneUnknownLaunchMakesItsTaskUnknown) {
  SubmissionRequest r = request();
  r.has_predictions = true;
  r.steps_seconds = {{"aaaaaaaaaaaa", 90.0}, {"bbbbbbbbbbbb", 30.0}, {"dddddddddddd", 300.0}};
  const std::string table = to_table(make_submission(r, arrays(), 1));
  EXPECT_THAT(table, HasSubstr("10 min      0.33        unknown\n"));
  EXPECT_THAT(table, HasSubstr("0.03 node-hours at most, beside the start of each launch; unknown of 1 of 3 tasks\n"));
  r.steps_seconds.clear();
  EXPECT_THAT(to_table(make_submission(r, arrays(), 1)),
              HasSubstr("predicted: nothing, the nodes' costs are unknown here\n"));
}

TEST(Submission, WhoIsKilledWhileWritingOneHasSubmittedNothing) {
  const data::TemporaryFolder folder;
  const Submission submission = make_submission(request(folder.path("results")), arrays(), 1);
  const std::filesystem::path sweep = folder.path("results/sweep"), submissions = sweep / "submissions";
  EXPECT_EQ(claim_submission(sweep), 1);
  EXPECT_TRUE(std::filesystem::exists(submissions / "1.part"));
  EXPECT_THAT(read_manifests(sweep), IsEmpty());
  write_submission(submission);
  EXPECT_EQ(read_manifests(sweep).size(), submission.arrays.size());
  EXPECT_FALSE(std::filesystem::exists(submissions / "1.part"));
  // As it is with the first of several arrays written.
  std::filesystem::rename(submissions / "1", submissions / "1.part");
  EXPECT_THAT(read_manifests(sweep), IsEmpty());
  EXPECT_EQ(claim_submission(sweep), 2);
}

TEST(Submission, WhatIsSubmittedLaterChangesNoFileOfOneBefore) {
  const data::TemporaryFolder folder;
  const std::filesystem::path sweep = folder.path("results/sweep");
  SubmissionRequest r = request(folder.path("results"));
  r.point_files = {{"aaaaaaaaaaaa", "first"}, {"bbbbbbbbbbbb", "first"}};
  write_submission(make_submission(r, arrays(), 1));
  r.point_files = {{"aaaaaaaaaaaa", "second"}};
  JobArray again{.geometry = {}, .tasks = {{{{"aaaaaaaaaaaa", -1, 0}}, 0}}};
  write_submission(make_submission(r, {again}, 2));
  EXPECT_EQ(read_file(sweep / "submissions/1/points/aaaaaaaaaaaa.toml"), "first");
  // What runs once more does so as it was asked for last.
  JobArray both = again;
  both.tasks.front().launches.push_back({"bbbbbbbbbbbb", -1, 0});
  EXPECT_EQ(read_point_files(read_manifests(sweep), {both}),
            (PointFiles{{"aaaaaaaaaaaa", "second"}, {"bbbbbbbbbbbb", "first"}}));
}

TEST(Submission, PointFilesOfEarlierVersionsAreFound) {
  const data::TemporaryFolder folder;
  const std::filesystem::path sweep = folder.path("results/sweep");
  const JobArray array{.geometry = {}, .tasks = {{{{"aaaaaaaaaaaa", -1, 0}}, 0}}};
  write_submission(make_submission(request(folder.path("results")), {array}, 1));
  EXPECT_THAT(data::user_error([&] { read_point_files(read_manifests(sweep), {array}); }),
              HasSubstr("submissions/1/points/aaaaaaaaaaaa.toml: cannot be read"));
  std::filesystem::create_directories(sweep / "aaaaaaaaaaaa");
  folder.write("results/sweep/aaaaaaaaaaaa/point.toml", "shared");
  EXPECT_EQ(read_point_files(read_manifests(sweep), {array}), (PointFiles{{"aaaaaaaaaaaa", "shared"}}));
}

TEST(Submission, WhatWasLeftOutIsWrittenWithIt) {
  const data::TemporaryFolder folder;
  SubmissionRequest r = request(folder.path("results"));
  r.left_out = {{.point_id = "eeeeeeeeeeee", .axes = "", .status = results::Status::oom, .message = "too large"}};
  write_submission(make_submission(r, arrays(), 1));
  EXPECT_EQ(read_left_out(folder.path("results/sweep")), r.left_out);
}

}  // namespace
}  // namespace strata::harness::test_submission
