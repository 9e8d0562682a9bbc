#pragma once

/// @file
/// Writes the results of one attempt on rank 0: `<attempt>.h5.part` and `<attempt>.jsonl`, as results-schema/ says.
/// Every group, dataset and attribute exists before the first row; afterwards rows are appended and nothing is created,
/// which is what lets a reader open the file after a SIGKILL.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "results/rows.hpp"
#include "results/status.hpp"

namespace strata::results {

struct RecorderSettings {
  double flush_seconds = 1.0;  ///< no row waits longer than this to reach the HDF5 file
  /// Disk space claimed ahead of HDF5's writes, so that a full disk is met by us and not in the middle of a flush.
  /// Given back when the file is closed. File systems that cannot preallocate (some network ones) work without it.
  std::int64_t reserve_bytes = std::int64_t{4} << 20;
  AttemptOrigin origin;  ///< for the status file
};

/// Owns the results folder's lock and the files of one attempt. Rank 0 only. All functions may be called from any
/// thread: a watchdog calls finish() while the main thread is stuck. A thread of its own writes to HDF5 and touches the
/// heartbeat, so add_step() costs one write(2).
///
/// Destroyed without finish(), the `.part` keeps every row and the status file is left as it is.
class Recorder {
 public:
  /// Creates @p folder (`<results>/<experiment>/<point-id>`), takes its lock and the next free attempt number, writes
  /// all facts. @throws UserError when the folder is not writable or another process holds it (its pid and host).
  Recorder(const std::string& folder, const AttemptFacts& facts, const RecorderSettings& settings = {});
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  int attempt() const;
  /// Nobody else can be at work in the folder: false where the file system has no locks.
  bool has_folder_to_itself() const;
  /// `<folder>/<attempt>.h5.part`, or `.h5` after finish().
  std::string path() const;
  std::string jsonl_path() const;
  /// For write_status() on other ranks: broadcast it before the first step.
  std::string status_path() const;

  /// Append rows: JSONL at once, HDF5 within `flush_seconds`. @throws UserError "results folder …: No space left on
  /// device" when writing failed, also for a row given earlier; rows written before stay readable.
  void add_step(const StepRow& row);
  void add_events(std::span<const EventRow> rows);
  void add_prediction(const PredictionRow& row);
  void add_evaluation(const EvaluationRow& row);
  void add_memory(std::span<const MemoryRow> rows);

  /// All rows given so far are in the HDF5 file when this returns.
  void flush();

  /// Write the summary (medians over measured steps) and the status, flush to the disk, rename to `.h5`, end the
  /// attempt's status file. @p parameter_checksum may be empty. Once; rows given later are an InternalError.
  void finish(Status status, const std::string& message, const std::string& parameter_checksum = "");

  /// Seconds spent recording so far, on the caller's thread and on the recorder's own.
  double recording_seconds() const;
  /// Seconds of a processor that both took: what ranks that share all cores lose by it, and no wait for one of them.
  double recording_cpu_seconds() const;

 private:
  class Attempt;
  std::unique_ptr<Attempt> attempt_;
};

}  // namespace strata::results
