/// @file
/// What goes in comes out: rows, facts, summary; JSONL and HDF5 agree; attempts are numbered; the lock refuses a second
/// writer.

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <type_traits>

#include "base/error.hpp"
#include "results/columns.hpp"
#include "results/recorder.hpp"
#include "unit/results/hdf5_reader.hpp"
#include "unit/results/sample_attempt.hpp"

namespace strata::results::test::test_recorder {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

/// Medians are of measured steps alone; how many the others are is told.
TEST(Summary, StepsThatFillAndDrainAreCountedAndLeftOut) {
  std::vector<StepRow> rows;
  for (const auto& [phase, seconds] :
       {std::pair(StepPhase::fill, 9.0), std::pair(StepPhase::fill, 8.0), std::pair(StepPhase::warmup, 7.0),
        std::pair(StepPhase::measured, 1.0), std::pair(StepPhase::measured, 2.0), std::pair(StepPhase::measured, 3.0),
        std::pair(StepPhase::drain, 6.0)}) {
    StepRow row = sample_step(std::ssize(rows));
    row.phase = phase;
    row.step_seconds_max = seconds;
    rows.push_back(row);
  }
  const Summary summary = summarize(rows);
  EXPECT_EQ(summary.median_step_seconds, 2.0);
  EXPECT_EQ(summary.num_fill_steps, 2);
  EXPECT_EQ(summary.num_warmup_steps, 1);
  EXPECT_EQ(summary.num_measured_steps, 3);
  EXPECT_EQ(summary.num_drain_steps, 1);
  EXPECT_EQ(summary.last_loss, sample_step(6).loss);
}

TEST(Recorder, EveryStepColumnComesBackFromHdf5AndJsonl) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "results/e/p", sample_facts());
  const std::int64_t num_steps = 300;  // more than one chunk
  for (std::int64_t step = 0; step < num_steps; ++step) {
    recorder.add_step(sample_step(step));
  }
  recorder.finish(Status::ok, "", "c0ffee");

  const Hdf5Reader reader(folder / "results/e/p/1.h5");
  const auto lines = lines_of(folder / "results/e/p/1.jsonl");
  ASSERT_EQ(lines.size(), 1U + num_steps + 1U);
  for (const Column<StepRow>& column : step_columns()) {
    const std::string& name = column.name;
    const auto values = reader.numbers("steps/" + name);
    ASSERT_EQ(values.size(), num_steps) << name;
    for (std::int64_t step = 0; step < num_steps; ++step) {
      const StepRow row = sample_step(step);
      const auto at = static_cast<std::size_t>(step);
      const auto& json = lines[at + 1].at(name);
      if (name == "phase") {
        EXPECT_EQ(values[at], step < 2 ? 0.0 : 1.0);
        EXPECT_EQ(json.get<std::string>(), step < 2 ? "warmup" : "measured");
        continue;
      }
      std::visit(
          [&]<class Member>(const Member& member) {
            using Value = ColumnValue<StepRow, Member>;
            if constexpr (std::is_arithmetic_v<Value>) {
              const Value value = std::invoke(member, row);
              if (std::isnan(static_cast<double>(value))) {
                EXPECT_TRUE(std::isnan(values[at])) << name;
                EXPECT_TRUE(json.is_null()) << name;
              } else {
                EXPECT_EQ(values[at], static_cast<double>(value)) << name;
                EXPECT_EQ(json.get<Value>(), value) << name;
              }
            } else {
              ADD_FAILURE() << name << " is not a number";
            }
          },
          column.member);
    }
  }
}

/// The names are made from the kinds, so what each holds is spelled out here.
TEST(Recorder, BytesSentAreRecordedByCollective) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "p", sample_facts());
  StepRow row = sample_step(0);
  row.sent_bytes = {1, 2, 3, 4, 5, 6, 7, 0};
  recorder.add_step(row);
  recorder.finish(Status::ok, "", "c0ffee");
  const Hdf5Reader reader(folder / "p/1.h5");
  const std::pair<const char*, double> expected[] = {{"all_reduce", 1}, {"reduce_scatter", 2}, {"all_gather", 3},
                                                     {"all_to_all", 4}, {"broadcast", 5},      {"reduce", 6},
                                                     {"send", 7}};
  for (const auto& [kind, bytes] : expected) {
    EXPECT_THAT(reader.numbers(fmt::format("steps/{}_sent_bytes", kind)), testing::ElementsAre(bytes)) << kind;
  }
}

/// More than the 64 KiB that an object's header can hold of an attribute.
TEST(Recorder, NamesOfAnyNumberOfRanks) {
  for (const std::size_t num_ranks : {4096U, 100'000U}) {
    const TemporaryFolder folder;
    AttemptFacts facts = sample_facts();
    facts.num_ranks = static_cast<std::int64_t>(num_ranks);
    facts.host_names.clear();
    for (std::size_t rank = 0; rank < num_ranks; ++rank) facts.host_names.push_back(fmt::format("node{}", rank / 8));
    facts.device_names.assign(num_ranks, "A800 80 GB");
    {
      Recorder recorder(folder / "p", facts);
      recorder.add_step(sample_step(0));
      recorder.flush();
      const Hdf5Reader reader(recorder.path());
      EXPECT_EQ(reader.text_attribute("/", "host_names"), facts.host_names) << "while it runs";
      recorder.finish(Status::ok, "", "c0ffee");
    }
    const Hdf5Reader reader(folder / "p/1.h5");
    EXPECT_EQ(reader.text_attribute("/", "host_names"), facts.host_names);
    EXPECT_EQ(reader.text_attribute("/", "device_names"), facts.device_names);
    EXPECT_NE(reader.text_attribute("/", "end_time").front(), "");
    const auto lines = lines_of(folder / "p/1.jsonl");
    EXPECT_EQ(lines.front().at("host_names").get<std::vector<std::string>>(), facts.host_names);
  }
}

TEST(Recorder, EventsPredictionsFactsAndSummary) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "p", sample_facts());
  std::vector<EventRow> events;
  for (int i = 0; i < 5000; ++i) {  // more than one chunk
    events.push_back(
        {i % 2, 3, 1, i, fmt::format("kernel é {}", i), 0.001 * i, 0.001 * i + 0.0005, 8 * i, "backward", i % 3, 0.5});
  }
  recorder.add_events(events);
  std::vector<MemoryRow> memory;
  for (int i = 0; i < 5000; ++i) memory.push_back({i % 2, 0.25 * i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6});
  recorder.add_memory(memory);
  recorder.add_prediction({"step_seconds_max", "s", 0.5, 0.25, "simulator"});
  recorder.add_prediction({"arena_peak_bytes", "byte", 1024.0, unknown, "program"});
  for (std::int64_t step = 0; step < 7; ++step) {
    recorder.add_step(sample_step(step));
  }
  recorder.finish(Status::oom, "OOM at block[3].mlp.fc1, needs 9 of 8 GiB", "c0ffee");

  const Hdf5Reader reader(recorder.path());
  const auto names = reader.texts("events/name");
  const auto begins = reader.numbers("events/begin_seconds");
  const auto phases = reader.texts("events/phase");
  const auto micro_batches = reader.numbers("events/micro_batch");
  const auto step_begins = reader.numbers("events/step_begin_seconds");
  ASSERT_EQ(names.size(), events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    ASSERT_EQ(names[i], events[i].name);
    ASSERT_EQ(begins[i], events[i].begin_seconds);
    ASSERT_EQ(phases[i], events[i].phase);
    ASSERT_EQ(step_begins[i], 0.5);
    ASSERT_EQ(micro_batches[i], static_cast<double>(events[i].micro_batch));
  }
  std::int64_t offset = 1;
  for (const char* name : {"parameter", "gradient", "optimizer", "activation", "workspace", "communication"}) {
    const auto bytes = reader.numbers(fmt::format("memory/{}_bytes", name));
    ASSERT_EQ(bytes.size(), memory.size());
    for (std::size_t i = 0; i < memory.size(); ++i) {
      ASSERT_EQ(bytes[i], static_cast<double>(static_cast<std::int64_t>(i) + offset)) << name;
    }
    ++offset;
  }
  EXPECT_EQ(reader.numbers("memory/seconds").back(), memory.back().seconds);
  EXPECT_EQ(reader.numbers("memory/rank").back(), 1.0);
  EXPECT_EQ(reader.numbers("events/event").back(), 4999.0);
  EXPECT_EQ(reader.numbers("events/sent_bytes").back(), 8.0 * 4999);
  EXPECT_THAT(reader.texts("predictions/metric"), testing::ElementsAre("step_seconds_max", "arena_peak_bytes"));
  EXPECT_THAT(reader.texts("predictions/unit"), testing::ElementsAre("s", "byte"));
  EXPECT_EQ(reader.numbers("predictions/measured").front(), 0.25);
  EXPECT_TRUE(std::isnan(reader.numbers("predictions/measured").back()));

  EXPECT_EQ(reader.text_attribute("/", "experiment_title").front(), "Ünïcode title");
  EXPECT_EQ(reader.text_attribute("/", "experiment_toml").front().size(), 100000U);
  EXPECT_THAT(reader.text_attribute("/", "device_names"), testing::ElementsAre("cpu a", "cpu b"));
  EXPECT_THAT(reader.text_attribute("/", "library_versions"),
              testing::ElementsAre(testing::StartsWith("HDF5=1."), "MPI=MPICH 4.0.2"));
  EXPECT_TRUE(reader.text_attribute("/", "modules_loaded").empty());
  EXPECT_THAT(reader.text_attribute("/", "end_time").front(), testing::MatchesRegex("2[0-9-]*T[0-9:.]*Z"));

  EXPECT_EQ(reader.numbers("summary/status").front(), static_cast<double>(Status::oom));
  EXPECT_EQ(reader.texts("summary/message").front(), "OOM at block[3].mlp.fc1, needs 9 of 8 GiB");
  EXPECT_EQ(reader.texts("summary/parameter_checksum").front(), "c0ffee");
  EXPECT_EQ(reader.numbers("summary/num_warmup_steps").front(), 2.0);
  EXPECT_EQ(reader.numbers("summary/num_measured_steps").front(), 5.0);
  EXPECT_EQ(reader.numbers("summary/median_step_seconds").front(), sample_step(4).step_seconds_max);
  EXPECT_EQ(reader.numbers("summary/median_compute_seconds").front(), sample_step(4).compute_seconds);
  EXPECT_EQ(reader.numbers("summary/first_loss").front(), sample_step(0).loss);
  EXPECT_EQ(reader.numbers("summary/last_loss").front(), sample_step(6).loss);
  EXPECT_EQ(reader.numbers("summary/arena_peak_bytes").front(), 226.0);

  const StatusFile status = read_status(folder / "p/1.status.json");
  EXPECT_EQ(status.status, Status::oom);
  EXPECT_EQ(status.message, "OOM at block[3].mlp.fc1, needs 9 of 8 GiB");
  EXPECT_EQ(status.pid, ::getpid());
}

TEST(Recorder, RowsReachHdf5WithoutAnotherCall) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "p", sample_facts(), {.flush_seconds = 0.05});
  recorder.add_step(sample_step(0));
  std::int64_t num_rows = 0;
  for (int i = 0; i < 100 && num_rows == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    try {
      num_rows = Hdf5Reader(recorder.path()).num_rows("steps/loss");
    } catch (const std::runtime_error&) {
      continue;  // copied in the middle of a flush
    }
  }
  EXPECT_EQ(num_rows, 1) << "the recorder's own thread writes, also while the run is stuck";
}

TEST(Recorder, AttemptsAreNumberedAndNeverOverwritten) {
  const TemporaryFolder folder;
  { Recorder(folder / "p", sample_facts()).finish(Status::ok, ""); }
  { const Recorder abandoned(folder / "p", sample_facts()); }
  Recorder third(folder / "p", sample_facts());
  EXPECT_EQ(third.attempt(), 3);
  EXPECT_TRUE(fs::exists(folder / "p/1.h5"));
  EXPECT_TRUE(fs::exists(folder / "p/2.h5.part"));
  EXPECT_EQ(read_status(folder / "p/2.status.json").status, Status::running);
  EXPECT_EQ(Hdf5Reader(folder / "p/2.h5.part").numbers("summary/status").front(), 0.0);
  third.finish(Status::ok, "");
  EXPECT_TRUE(fs::exists(folder / "p/3.h5"));
  EXPECT_FALSE(fs::exists(folder / "p/3.h5.part"));
}

TEST(Recorder, SecondJobOnTheSameFolderIsRefusedByName) {
  const TemporaryFolder folder;
  Recorder first(folder / "p", sample_facts());
  const auto second = [&] { Recorder(folder / "p", sample_facts()); };
  EXPECT_THAT(second, ThrowsMessage<UserError>(testing::AllOf(HasSubstr("in use by pid"), HasSubstr("p: in use"),
                                                              HasSubstr(std::to_string(::getpid())))));
  first.add_step(sample_step(0));
  first.finish(Status::ok, "");
  EXPECT_EQ(Hdf5Reader(folder / "p/1.h5").num_rows("steps/step"), 1);
  EXPECT_FALSE(fs::exists(folder / "p/2.jsonl"));
}

TEST(Recorder, RowsAfterTheEndAreOurBug) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "p", sample_facts());
  recorder.finish(Status::ok, "");
  EXPECT_THROW(recorder.add_step(sample_step(0)), InternalError);
  EXPECT_THROW(recorder.finish(Status::ok, ""), InternalError);
}

TEST(Recorder, FolderBelowAFileIsOneMessage) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  const auto open = [&] { Recorder(folder / "file/p", sample_facts()); };
  EXPECT_THAT(open,
              ThrowsMessage<UserError>(testing::AllOf(HasSubstr("results folder"), HasSubstr("Not a directory"))));
}

TEST(Recorder, FolderThatIsNotWritableIsOneMessage) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "closed");
  ASSERT_EQ(::chmod((folder / "closed").c_str(), 0555), 0);
  ASSERT_EQ(::chmod((folder / "").c_str(), 0755), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // root may write anywhere, so become nobody
    if (::geteuid() == 0 && ::setuid(65534) != 0) {
      ::_exit(3);
    }
    try {
      Recorder(folder / "closed/p", sample_facts());
    } catch (const UserError& error) {
      ::_exit(std::string(error.what()).find("Permission denied") != std::string::npos ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(StatusFile, FirstEndingStays) {
  const TemporaryFolder folder;
  const std::string path = folder / "1.status.json";
  EXPECT_THROW(read_status(path), UserError);
  EXPECT_TRUE(write_status(path, Status::running, "", 0));
  EXPECT_TRUE(write_status(path, Status::node_failure, "rank 0 is gone: \"no\" answer", 3));
  EXPECT_FALSE(write_status(path, Status::ok, "", 1));
  const StatusFile status = read_status(path);
  EXPECT_EQ(status.status, Status::node_failure);
  EXPECT_EQ(status.message, "rank 0 is gone: \"no\" answer");
  EXPECT_EQ(status.rank, 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / ""), fs::directory_iterator()), 2)
      << "the file and the lock, no temporary left";
}

TEST(StatusFile, AStrangersLockStopsNobody) {
  const TemporaryFolder folder;
  const std::string path = folder / "1.status.json";
  write_status(path, Status::running, "", 0);
  const int stranger = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(stranger, 0);
  ASSERT_EQ(::flock(stranger, LOCK_SH), 0);
  EXPECT_TRUE(write_status(path, Status::ok, "", 0));
  EXPECT_EQ(read_status(path).status, Status::ok);
  ::close(stranger);
}

TEST(StatusFile, AWriterThatIsKilledStopsNobody) {
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    const std::string path = folder / "1.status.json";
    write_status(path, Status::running, "", 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) write_status(path, Status::running, "still", 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + round % 7));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(write_status(path, Status::killed, "", 2));
    EXPECT_EQ(read_status(path).status, Status::killed);
  }
}

TEST(StatusFile, HeartbeatMovesTheModificationTimeAlone) {
  const TemporaryFolder folder;
  const std::string path = folder / "1.status.json";
  write_status(path, Status::running, "", 0);
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto before = read_status(path);
  touch_heartbeat(path);
  EXPECT_LT(fs::file_time_type::clock::now() - fs::last_write_time(path), std::chrono::seconds(30));
  EXPECT_EQ(read_status(path), before);
  touch_heartbeat(folder / "absent");
  EXPECT_FALSE(fs::exists(folder / "absent"));
}

TEST(StatusFile, WordsAndTimes) {
  for (int i = 0; i < num_statuses; ++i) {
    EXPECT_EQ(parse_status(to_string(static_cast<Status>(i))), static_cast<Status>(i));
  }
  EXPECT_THAT([] { parse_status("fine"); }, ThrowsMessage<UserError>(HasSubstr("running, ok, oom, refused")));
  EXPECT_EQ(to_iso_8601(0.0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(to_iso_8601(1769862896.789), "2026-01-31T12:34:56.789Z");
}

TEST(Recorder, AddingAStepIsCheap) {
  const TemporaryFolder folder;
  Recorder recorder(folder / "p", sample_facts());
  const auto begin = std::chrono::steady_clock::now();
  constexpr int num_steps = 2000;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    recorder.add_step(sample_step(step));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  recorder.flush();
  RecordProperty("add_step_microseconds", fmt::format("{:.1f}", 1e6 * seconds / num_steps));
  fmt::print("add_step: {:.1f} us; recording in all {:.1f} us a row, {:.1f} us of a core\n", 1e6 * seconds / num_steps,
             1e6 * recorder.recording_seconds() / num_steps, 1e6 * recorder.recording_cpu_seconds() / num_steps);
  EXPECT_LT(seconds / num_steps, 1e-3) << "1 % of a step of 100 ms";
  recorder.finish(Status::ok, "");
  const double cpu_seconds = Hdf5Reader(recorder.path()).numbers("summary/recording_cpu_seconds").at(0);
  EXPECT_GT(cpu_seconds, 0.0);
  EXPECT_EQ(cpu_seconds, recorder.recording_cpu_seconds());
}

}  // namespace
}  // namespace strata::results::test::test_recorder
