/// @file
/// The recorder: callers append to queues and to JSONL, one thread of its own empties the queues into HDF5.

#include "results/recorder.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "results/attempt_file.hpp"
#include "results/columns.hpp"
#include "results/folder.hpp"
#include "results/json_line.hpp"

namespace strata::results {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr double heartbeat_seconds = 5.0;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void add_to(std::atomic<double>& sum, double seconds) {
  double before = sum;
  while (!sum.compare_exchange_weak(before, before + seconds)) {
  }
}

Json to_json(std::span<const Attribute> attributes) {
  Json json = {{"kind", "attempt"}};
  for (const Attribute& attribute : attributes) {
    std::visit([&](const auto& value) { json[std::string(attribute.name)] = value; }, attribute.value);
  }
  return json;
}

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

class Recorder::Attempt {
 public:
  Attempt(const std::string& folder, const AttemptFacts& facts, const RecorderSettings& settings)
      : settings_(settings),
        folder_(folder),
        jsonl_(folder_.take_jsonl()),
        attributes_(root_attributes(facts, folder_.attempt(), to_iso_8601(unix_seconds_now()))) {
    try {
      jsonl_.write_all(line_of(to_json(attributes_)));
      file_ = std::make_unique<AttemptFile>(path(), attributes_, settings.reserve_bytes);
      write_status(status_path(), Status::running, "", 0, settings.origin);
    } catch (...) {
      // An attempt that could not begin leaves no trace that a reader would have to explain.
      file_.reset();
      for (const std::string& name : {jsonl_path(), path(), status_path()}) {
        ::unlink(name.c_str());
      }
      throw;
    }
    start_writer();
  }

  ~Attempt() {
    stop_writer();
    try {
      if (!failure_) {
        write_pending();
      }
    } catch (const std::exception&) {
      // write_pending() has recorded the failure in the status file; a destructor has nobody else to tell.
    }
  }

  int attempt() const { return folder_.attempt(); }
  bool has_folder_to_itself() const { return folder_.is_locked(); }
  std::string path() const { return folder_.file(finished_ ? ".h5" : ".h5.part"); }
  std::string jsonl_path() const { return folder_.file(".jsonl"); }
  std::string status_path() const { return folder_.file(".status.json"); }
  double recording_seconds() const { return recording_seconds_; }
  double recording_cpu_seconds() const { return recording_cpu_seconds_; }

  void add(const StepRow& row) {
    add_line([&] { return json_line("step", step_columns(), row); },
             [&] {
               pending_.steps.push_back(row);
               all_steps_.push_back(row);
             });
  }

  void add(std::span<const EventRow> rows) {
    for (const EventRow& row : rows) {
      add_line([&] { return json_line("event", event_columns(), row); }, [&] { pending_.events.push_back(row); });
    }
  }

  void add(const PredictionRow& row) {
    add_line([&] { return json_line("prediction", prediction_columns(), row); },
             [&] { pending_.predictions.push_back(row); });
  }

  void add(const EvaluationRow& row) {
    add_line([&] { return json_line("evaluation", evaluation_columns(), row); },
             [&] { pending_.evaluations.push_back(row); });
  }

  void add(std::span<const MemoryRow> rows) {
    for (const MemoryRow& row : rows) {
      add_line([&] { return json_line("sample", memory_columns(), row); }, [&] { pending_.memory.push_back(row); });
    }
  }

  void flush() {
    {
      const std::scoped_lock lock(mutex_);
      check_open();
    }
    write_pending();
  }

  void finish(Status status, const std::string& message, const std::string& parameter_checksum) {
    {
      const std::scoped_lock lock(mutex_);
      check_open();
      finished_requested_ = true;
    }
    stop_writer();
    write_pending();
    Summary summary = summarize(all_steps_);
    summary.status = status;
    summary.message = message;
    summary.parameter_checksum = parameter_checksum;
    summary.recording_seconds = recording_seconds_;
    summary.recording_cpu_seconds = recording_cpu_seconds_;
    try {
      jsonl_.write_all(json_line("end", summary_columns(), summary));
      jsonl_.sync();
      file_->end(summary, to_iso_8601(unix_seconds_now()));
      rename_file(folder_.file(".h5.part"), folder_.file(".h5"));
      finished_ = true;
      write_status(status_path(), status, message, 0);
    } catch (...) {
      // Both files tell of one ending: the name of a complete file is taken back where the status could not follow.
      if (finished_.exchange(false)) std::rename(folder_.file(".h5").c_str(), folder_.file(".h5.part").c_str());
      fail(std::current_exception());
      throw;
    }
  }

 private:
  struct Begin {
    Clock::time_point time = Clock::now();
    double cpu_seconds = thread_cpu_seconds();
  };

  template <class ToLine, class Enqueue>
  void add_line(ToLine&& to_line, Enqueue&& enqueue) {
    const Begin begin;
    const std::string line = to_line();
    {
      const std::scoped_lock lock(mutex_);
      check_open();
      enqueue();
    }
    try {
      jsonl_.write_all(line);  // O_APPEND: whole lines, whichever thread writes
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      try {
        write_pending();  // the reserve still has room for the rows that JSONL took
      } catch (const std::exception&) {
        // The first failure is the one to report.
      }
      fail(failure);
      throw;
    }
    count(begin);
  }

  /// Needs mutex_.
  void check_open() {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    STRATA_INVARIANT(!finished_requested_, "the attempt has ended; it takes no more rows");
  }

  /// Move the queues into HDF5. One caller at a time, so that rows keep their order.
  void write_pending() {
    const std::scoped_lock writing(writing_mutex_);
    PendingRows rows;
    {
      const std::scoped_lock lock(mutex_);
      if (failure_) {
        std::rethrow_exception(failure_);
      }
      std::swap(rows, pending_);
    }
    if (rows.empty()) return;
    const Begin begin;
    try {
      file_->append(rows);
    } catch (...) {
      fail(std::current_exception());
      throw;
    }
    count(begin);
  }

  void write_until_stopped() {
    const auto interval = std::chrono::duration<double>(settings_.flush_seconds);
    auto last_heartbeat = Clock::now();
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, interval, [&] { return stopping_; })) {
      lock.unlock();
      try {
        write_pending();
      } catch (const std::exception&) {
        return;  // kept in failure_; the next call of the owner throws it
      }
      if (seconds_since(last_heartbeat) >= heartbeat_seconds) {
        touch_heartbeat(status_path());
        last_heartbeat = Clock::now();
      }
      lock.lock();
    }
  }

  /// The writer takes no signals: handlers of time limits and preemption belong to the main thread.
  void start_writer() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    writer_ = std::thread([this] { write_until_stopped(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void stop_writer() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    if (writer_.joinable()) {
      writer_.join();
    }
  }

  /// Remember the first failure, close the HDF5 file, which gives its reserve back to the disk, and with that space
  /// name the failure in the status file.
  void fail(const std::exception_ptr& failure) {
    {
      const std::scoped_lock lock(mutex_);
      if (failure_) {
        return;
      }
      failure_ = failure;
    }
    std::string message = "unknown error";
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      message = error.what();
    }
    try {
      file_->abandon();
      write_status(status_path(), Status::recording_error, message, 0);
    } catch (const std::exception&) {
      // The disk takes nothing more; the owner still hears of it through failure_.
    }
  }

  /// What this thread has spent since.
  void count(const Begin& begin) {
    add_to(recording_seconds_, seconds_since(begin.time));
    add_to(recording_cpu_seconds_, thread_cpu_seconds() - begin.cpu_seconds);
  }

  RecorderSettings settings_;
  PointFolder folder_;
  FileDescriptor jsonl_;
  std::vector<Attribute> attributes_;
  std::unique_ptr<AttemptFile> file_;

  std::mutex writing_mutex_;  ///< taken before mutex_
  std::mutex mutex_;          ///< guards all below
  std::condition_variable stop_;
  bool stopping_ = false;
  bool finished_requested_ = false;
  std::exception_ptr failure_;
  PendingRows pending_;
  std::vector<StepRow> all_steps_;

  std::atomic<bool> finished_ = false;
  std::atomic<double> recording_seconds_ = 0.0;
  std::atomic<double> recording_cpu_seconds_ = 0.0;
  std::thread writer_;
};

Recorder::Recorder(const std::string& folder, const AttemptFacts& facts, const RecorderSettings& settings)
    : attempt_(std::make_unique<Attempt>(folder, facts, settings)) {}
Recorder::~Recorder() = default;

int Recorder::attempt() const { return attempt_->attempt(); }
bool Recorder::has_folder_to_itself() const { return attempt_->has_folder_to_itself(); }
std::string Recorder::path() const { return attempt_->path(); }
std::string Recorder::jsonl_path() const { return attempt_->jsonl_path(); }
std::string Recorder::status_path() const { return attempt_->status_path(); }
void Recorder::add_step(const StepRow& row) { attempt_->add(row); }
void Recorder::add_events(std::span<const EventRow> rows) { attempt_->add(rows); }
void Recorder::add_prediction(const PredictionRow& row) { attempt_->add(row); }
void Recorder::add_evaluation(const EvaluationRow& row) { attempt_->add(row); }
void Recorder::add_memory(std::span<const MemoryRow> rows) { attempt_->add(rows); }
void Recorder::flush() { attempt_->flush(); }
void Recorder::finish(Status status, const std::string& message, const std::string& parameter_checksum) {
  attempt_->finish(status, message, parameter_checksum);
}
double Recorder::recording_seconds() const { return attempt_->recording_seconds(); }
double Recorder::recording_cpu_seconds() const { return attempt_->recording_cpu_seconds(); }

}  // namespace strata::results
