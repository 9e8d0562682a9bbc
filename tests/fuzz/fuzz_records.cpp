/// @file
/// What jobs, Slurm and earlier readers left for `strata status`: readers that pass over what they cannot read. The
/// first byte says which of them reads.

#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/fuzz_target.hpp"
#include "harness/job_record.hpp"
#include "harness/slurm.hpp"
#include "harness/sweep_state.hpp"

namespace strata::fuzz::job_records {
namespace {

/// endings.json, beside the manifests of a sweep.
void read_endings(Bytes bytes) {
  static const TemporaryFolder sweep;
  const std::filesystem::path& folder = sweep.path();
  std::filesystem::create_directories(folder / "submissions");
  std::ofstream(folder / "submissions" / "endings.json", std::ios::binary) << text_of(bytes);
  harness::SweepState state;
  state.endings.push_back(
      {.point_id = "aaaaaaaaaaaa", .attempt = 1, .status = results::Status::killed, .message = "?"});
  harness::record_endings(folder, state);
  harness::record_endings(folder, state);
}

}  // namespace

STRATA_FUZZ_TARGET(records) {
  Choices choices(bytes);
  const int reader = choices.of(3);
  const std::string text = text_of(choices.rest());
  if (reader == 0) harness::parse_job_record(text);
  if (reader == 1) harness::parse_queue(text);
  if (reader == 2) read_endings(choices.rest());
}

}  // namespace strata::fuzz::job_records
