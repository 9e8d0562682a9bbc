/// @file
/// Manifests read back to what was written; what is no manifest is refused by name.

#include <gmock/gmock.h>

#include "unit/data/temporary_folder.hpp"
#include "unit/harness/sample_manifest.hpp"

namespace strata::harness::test_manifest {
namespace {

using data::TemporaryFolder;
using data::user_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Manifest, ReadsBack) {
  const Manifest manifest = test::sample_manifest("/results");
  EXPECT_EQ(parse_manifest(to_json(manifest), "m.json"), manifest);
}

TEST(Manifest, NamesItsFilesAndLaunches) {
  const Manifest manifest = test::sample_manifest("/results");
  EXPECT_EQ(array_file(manifest, ".sh"), "/results/sweep/submissions/3/array-1.sh");
  EXPECT_EQ(launch_name(manifest, 0, 2), "3/1.0.2");
}

TEST(Manifest, OtherFilesAreRefused) {
  EXPECT_THAT(user_error([] { parse_manifest("{}", "m.json"); }), AllOf(HasSubstr("m.json"), HasSubstr("manifest")));
  std::string later = to_json(test::sample_manifest("/results"));
  later.replace(later.find("\"version\": 1"), 12, "\"version\": 9");
  EXPECT_THAT(user_error([&] { parse_manifest(later, "m.json"); }), AllOf(HasSubstr("9"), HasSubstr("1")));
}

TEST(Manifest, PointsLeadNowhereElse) {
  for (const char* id : {"../../elsewhere", "/etc", "a b", ""}) {
    std::string text = to_json(test::sample_manifest("/results"));
    text.replace(text.find("\"aaaaaaaaaaaa\""), 14, "\"" + std::string(id) + "\"");
    EXPECT_THAT(user_error([&] { parse_manifest(text, "m.json"); }), HasSubstr("is no name of a folder")) << id;
  }
}

TEST(Manifest, AllOfAnExperimentInOrder) {
  const TemporaryFolder folder;
  for (const auto& [submission, array] : {std::pair{10, 0}, {2, 1}, {2, 0}}) {
    Manifest manifest = test::sample_manifest(folder.path(""));
    manifest.submission = submission;
    manifest.array = array;
    std::filesystem::create_directories(submission_folder(manifest));
    std::ofstream(array_file(manifest, ".json")) << to_json(manifest);
  }
  const std::vector<Manifest> found = read_manifests(folder.path("sweep"));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(std::pair(found[0].submission, found[0].array), std::pair(2, 0));
  EXPECT_EQ(std::pair(found[1].submission, found[1].array), std::pair(2, 1));
  EXPECT_EQ(found[2].submission, 10);
  EXPECT_TRUE(read_manifests(folder.path("nothing")).empty());
}

TEST(Manifest, NumbersAreWholeAndInRange) {
  const std::string good = to_json(test::sample_manifest("/results"));
  for (const char* wrong : {"1.5", "1e300", "4294967296", "\"1\"", "[]"}) {
    std::string text = good;
    text.replace(text.find("\"array\": 1"), 10, std::string("\"array\": ") + wrong);
    EXPECT_THAT(user_error([&] { parse_manifest(text, "m.json"); }),
                AllOf(HasSubstr("m.json: not a manifest of strata: array"), HasSubstr("an integer of 32 bits")))
        << wrong;
  }
}

}  // namespace
}  // namespace strata::harness::test_manifest
