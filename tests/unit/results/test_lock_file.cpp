#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "results/lock_file.hpp"
#include "results/recorder.hpp"
#include "results/status.hpp"
#include "unit/results/sample_attempt.hpp"

namespace strata::results::test::test_lock_file {
namespace {

using namespace std::chrono_literals;

/// Permissions alone.
unsigned mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777U;
}

/// Under a mask of its own, as other umasks are of others' processes.
template <typename Action>
void with_umask(mode_t mask, const Action& action) {
  const mode_t before = ::umask(mask);
  action();
  ::umask(before);
}

TEST(LockFile, IsReadableForThoseAloneWhoMayWriteIt) {
  const TemporaryFolder folder;
  with_umask(022, [&] { LockFile(folder / "own"); });
  EXPECT_EQ(mode_of(folder / "own"), 0600U);
  with_umask(002, [&] { LockFile(folder / "group"); });
  EXPECT_EQ(mode_of(folder / "group"), 0660U);
  std::ofstream(folder / "older") << "pid 1\n";
  ASSERT_EQ(::chmod((folder / "older").c_str(), 0644), 0);
  LockFile(folder / "older");
  EXPECT_EQ(mode_of(folder / "older"), 0600U) << "of a version that let all read it";
}

TEST(LockFile, OneHolderAtATime) {
  const TemporaryFolder folder;
  const LockFile first(folder / "lock"), second(folder / "lock");
  EXPECT_EQ(first.take(0ms), LockState::held);
  EXPECT_EQ(second.take(10ms), LockState::busy);
}

/// flock(2) on @p path by a descriptor of its own, as another process would have it.
FileDescriptor held_lock(const std::string& path, int flags, int operation) {
  FileDescriptor file(path, flags);
  EXPECT_EQ(::flock(file.get(), operation), 0);
  return file;
}

TEST(StatusFile, AnEndingIsNotLostForALockAndThatIsSaid) {
  const TemporaryFolder folder;
  const std::string path = folder / "1.status.json";
  write_status(path, Status::running, "", 0);
  const FileDescriptor other = held_lock(folder / "status.lock", O_RDWR, LOCK_EX);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(write_status(path, Status::timeout, "told to", 0));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("status.lock: another process keeps it locked"),
                             testing::HasSubstr("1.status.json is written without a lock")));
  EXPECT_EQ(read_status(path).status, Status::timeout);
}

TEST(Recorder, AReaderThatLooksForAHolderStopsNoJob) {
  const TemporaryFolder folder;
  { Recorder(folder / "p", sample_facts()).finish(Status::ok, ""); }
  FileDescriptor reader = held_lock(folder / "p/lock", O_RDONLY, LOCK_SH);
  const auto looks = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(100ms);
    FileDescriptor(std::move(reader));  // closes it
  });
  Recorder second(folder / "p", sample_facts());
  EXPECT_EQ(second.attempt(), 2);
  second.finish(Status::ok, "");
}

}  // namespace
}  // namespace strata::results::test::test_lock_file
