/// @file
/// A full disk is one message; what was written before stays readable; the status file says why; nothing crashes.
/// Needs a small file system of its own, so it runs as root and is skipped otherwise.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/error.hpp"
#include "results/recorder.hpp"
#include "unit/results/hdf5_reader.hpp"
#include "unit/results/sample_attempt.hpp"

namespace strata::results::test::test_disk_full {
namespace {

namespace fs = std::filesystem;

class DiskFull : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(disk_);
    if (::mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=8m") != 0) {
      GTEST_SKIP() << "cannot mount a small file system here";
    }
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) {
      ::umount2(disk_.c_str(), MNT_DETACH);
    }
  }

  /// Leave @p free_bytes on the disk.
  void fill_up_to(std::int64_t free_bytes) const {
    const auto available = static_cast<std::int64_t>(fs::space(disk_).available);
    ASSERT_GT(available, free_bytes);
    std::ofstream file(disk_ + "/ballast", std::ios::binary);
    const std::string block(4096, 'x');
    for (std::int64_t written = 0; written + 4096 <= available - free_bytes; written += 4096) {
      file << block;
    }
  }

  /// An attempt that ended well, to be read again afterwards.
  void record_a_good_attempt() const {
    Recorder recorder(disk_ + "/p", sample_facts(), {.reserve_bytes = 1 << 20});
    recorder.add_step(sample_step(0));
    recorder.finish(Status::ok, "");
  }
  void expect_the_good_attempt_is_whole() const {
    const Hdf5Reader reader(disk_ + "/p/1.h5");
    EXPECT_EQ(reader.numbers("steps/loss").at(0), sample_step(0).loss);
  }

  /// Rows given until the recorder threw, and what it said.
  struct Outcome {
    std::int64_t num_rows = 0;
    std::string message;
  };
  static Outcome add_until_full(Recorder& recorder) {
    Outcome outcome;
    try {
      for (; outcome.num_rows < 200000; ++outcome.num_rows) {
        recorder.add_step(sample_step(outcome.num_rows));
        if (outcome.num_rows % 100 == 0) {
          recorder.flush();
        }
      }
    } catch (const UserError& error) {
      outcome.message = error.what();
    }
    return outcome;
  }

  const TemporaryFolder folder_;
  const std::string disk_ = folder_ / "disk";
  bool mounted_ = false;
};

TEST_F(DiskFull, WhileAddingRows) {
  record_a_good_attempt();
  {
    Recorder recorder(disk_ + "/p", sample_facts(), {.reserve_bytes = 1 << 20});
    fill_up_to(512 << 10);
    const Outcome outcome = add_until_full(recorder);
    EXPECT_THAT(outcome.message, testing::AllOf(testing::HasSubstr("results folder " + disk_ + "/p"),
                                                testing::HasSubstr("No space left on device")));
    EXPECT_GT(outcome.num_rows, 100);
    EXPECT_THROW(recorder.finish(Status::ok, ""), UserError) << "a file that lost rows must not end as ok";
    EXPECT_THROW(recorder.add_step(sample_step(0)), UserError);

    const Hdf5Reader reader(recorder.path());
    const auto steps = reader.numbers("steps/step");
    EXPECT_GE(static_cast<std::int64_t>(steps.size()), outcome.num_rows);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      ASSERT_EQ(steps[i], static_cast<double>(i));
    }
    const StatusFile status = read_status(recorder.status_path());
    EXPECT_EQ(status.status, Status::recording_error);
    EXPECT_EQ(status.message, outcome.message);
  }
  EXPECT_FALSE(fs::exists(disk_ + "/p/2.h5"));
  EXPECT_TRUE(fs::exists(disk_ + "/p/2.h5.part"));
  expect_the_good_attempt_is_whole();
}

TEST_F(DiskFull, AtTheStartLeavesNoHalfBornAttempt) {
  record_a_good_attempt();
  for (const std::int64_t free_bytes : {0, 4096, 16384, 512 << 10}) {
    fs::remove(disk_ + "/ballast");
    fill_up_to(free_bytes);
    EXPECT_THAT([&] { Recorder(disk_ + "/p", sample_facts()); },
                testing::ThrowsMessage<UserError>(testing::HasSubstr("No space left on device")))
        << free_bytes;
    for (const auto& entry : fs::directory_iterator(disk_ + "/p")) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("2.")) << entry.path();
    }
  }
  expect_the_good_attempt_is_whole();
}

TEST_F(DiskFull, SpaceClaimedAheadIsGivenBack) {
  Recorder recorder(disk_ + "/p", sample_facts(), {.reserve_bytes = 4 << 20});
  recorder.add_step(sample_step(0));
  recorder.flush();
  const auto blocks_bytes = [&] {
    struct stat info {};
    EXPECT_EQ(::stat(recorder.path().c_str(), &info), 0);
    return std::pair{std::int64_t{info.st_blocks} * 512, std::int64_t{info.st_size}};
  };
  EXPECT_GT(blocks_bytes().first, 3 << 20);
  recorder.finish(Status::ok, "");
  const auto [allocated, size] = blocks_bytes();
  EXPECT_LE(allocated, size + 4096);
}

/// Where space cannot be claimed, HDF5 itself meets the full disk. In a child, since what is at stake is a crash, also
/// in the library's exit handler.
TEST_F(DiskFull, WithoutAReserveTheProcessStillEndsWithTheMessage) {
  record_a_good_attempt();
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    {
      Recorder recorder(disk_ + "/p", sample_facts(), {.reserve_bytes = 0});
      fill_up_to(64 << 10);
      const Outcome outcome = add_until_full(recorder);
      code = outcome.message.find("No space left on device") != std::string::npos ? 0 : 1;
    }
    std::exit(code);  // runs HDF5's exit handler
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  expect_the_good_attempt_is_whole();
}

}  // namespace
}  // namespace strata::results::test::test_disk_full
