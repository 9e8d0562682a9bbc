/// @file
/// What a submission did not queue is kept, read back and told by status, and never submitted again by itself.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "harness/left_out.hpp"
#include "harness/sweep_state.hpp"
#include "support/refusal.hpp"
#include "unit/data/temporary_folder.hpp"
#include "unit/harness/sample_manifest.hpp"

namespace strata::harness::test_left_out {
namespace {

using results::Status;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const LeftOutPoint too_large{
    .point_id = "dddddddddddd", .axes = "model=large", .status = Status::oom, .message = "needs 7 GiB of 5"};
const LeftOutPoint refused{
    .point_id = "eeeeeeeeeeee", .axes = "nodes=3", .status = Status::refused, .message = "5 heads on\n3 ranks"};

TEST(LeftOut, IsReadAsItWasWritten) {
  EXPECT_EQ(parse_left_out(to_json({too_large, refused}), "f.json"), (std::vector{too_large, refused}));
  for (const char* bad : {"", "{}", R"({"schema": "strata-manifest", "version": 1, "points": []})",
                          R"({"schema": "strata-left-out", "version": 2, "points": []})",
                          R"({"schema": "strata-left-out", "version": 1, "points": [{"point": 3}]})"}) {
    EXPECT_THAT(words_of<UserError>([&] { parse_left_out(bad, "f.json"); }), HasSubstr("f.json: not a list of points"))
        << bad;
  }
}

TEST(LeftOut, ReasonsThatDifferInNumbersAreOne) {
  LeftOutPoint larger = too_large;
  larger.message = "needs 31 GiB of 5";
  EXPECT_EQ(to_text({refused, too_large, larger}),
            "oom          2  needs 7 GiB of 5, first point dddddddddddd\n"
            "refused      1  5 heads on 3 ranks, point eeeeeeeeeeee\n");
  EXPECT_EQ(to_text({}), "");
}

class LeftOutOfASweep : public ::testing::Test {
 protected:
  LeftOutOfASweep() : manifest(test::sample_manifest(folder.path("results"))) { test::put(manifest); }

  void leave_out(int submission, const std::vector<LeftOutPoint>& points) const {
    const auto path = experiment_folder(manifest) / "submissions" / std::to_string(submission);
    std::filesystem::create_directories(path);
    write_left_out(path, points);
  }
  SweepState state() const { return sweep_state(experiment_folder(manifest), {}); }

  data::TemporaryFolder folder;
  Manifest manifest;
};

TEST_F(LeftOutOfASweep, TheLastSubmissionHasTheSay) {
  EXPECT_THAT(read_left_out(experiment_folder(manifest)), IsEmpty());
  LeftOutPoint later = too_large;
  later.message = "needs 8 GiB of 5";
  leave_out(10, {later});
  leave_out(2, {too_large, refused});
  EXPECT_THAT(read_left_out(experiment_folder(manifest)), ElementsAre(later, refused));
}

TEST_F(LeftOutOfASweep, StatusCountsThemAndNobodySubmitsThem) {
  // One of them was queued all the same, by the submission of the sample.
  LeftOutPoint queued = refused;
  queued.point_id = "cccccccccccc";
  leave_out(3, {too_large, refused, queued});
  EXPECT_EQ(summary_line(state()), "sweep: 5 points, 7 launches: 1 left out (oom), 1 left out (refused), 5 missing");
  EXPECT_THAT(
      reasons(state(), false),
      AllOf(HasSubstr("left out (oom)          1  needs 7 GiB of 5, point dddddddddddd\n"),
            HasSubstr("left out (refused)      1  5 heads on 3 ranks, point eeeeeeeeeeee\n"),
            HasSubstr("missing                 5  nobody runs it: `strata resume` submits it, first point aaaa")));
  EXPECT_THAT(to_table(state(), false), HasSubstr("dddddddddddd  left out (oom)      0      -    model=large"));
  const std::vector<JobArray> again = arrays_to_resume(state(), {});
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].tasks, manifest.job.tasks);
}

}  // namespace
}  // namespace strata::harness::test_left_out
