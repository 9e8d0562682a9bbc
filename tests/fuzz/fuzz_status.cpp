/// @file
/// How an attempt ended.

#include "fuzz/fuzz_target.hpp"
#include "results/status.hpp"

namespace strata::fuzz::status_file {

STRATA_FUZZ_TARGET(status) {
  const FileInMemory file(bytes);
  const auto status = unless_refused(file.path(), [&] { return results::read_status(file.path()); });
  if (!status) return;
  require(results::parse_status(to_string(status->status)) == status->status, "a status and its word differ");
}

}  // namespace strata::fuzz::status_file
