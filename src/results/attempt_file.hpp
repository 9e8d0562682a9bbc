#pragma once

/// @file
/// The HDF5 file of one attempt: made complete and empty, then only appended to.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "results/columns.hpp"
#include "results/space_reserve.hpp"

namespace strata::results {

/// Rows that are not in the file yet, by table.
struct PendingRows {
  std::vector<StepRow> steps;
  std::vector<EventRow> events;
  std::vector<PredictionRow> predictions;
  std::vector<MemoryRow> memory;
  std::vector<EvaluationRow> evaluations;
  bool empty() const {
    return steps.empty() && events.empty() && predictions.empty() && memory.empty() && evaluations.empty();
  }
};

class AttemptFile {
 public:
  /// Create @p path with every group, dataset and attribute of the schema, flushed. @throws UserError naming the
  /// folder.
  AttemptFile(const std::string& path, std::span<const Attribute> attributes, std::int64_t reserve_bytes);
  /// Closes what is open and gives unused space back; never throws.
  ~AttemptFile();
  AttemptFile(const AttemptFile&) = delete;
  AttemptFile& operator=(const AttemptFile&) = delete;

  /// Append rows and flush them to the system. @throws UserError when the disk is full; rows of earlier calls stay
  /// readable, and the file takes no further rows.
  void append(const PendingRows& rows);

  /// Write /summary and `end_time`, close, fsync. @throws UserError.
  void end(const Summary& summary, const std::string& end_time);

  /// Close without an ending: after a failed write. What is in the file stays; the claimed space goes back.
  void abandon() noexcept;

 private:
  class Open;
  std::string path_;
  std::unique_ptr<SpaceReserve> reserve_;
  std::unique_ptr<Open> open_;
};

}  // namespace strata::results
