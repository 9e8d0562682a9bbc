/// @file
/// Tables of measured training runs, as `strata validate` takes them.

#include "config/measured_runs.hpp"
#include "fuzz/fuzz_target.hpp"

namespace strata::fuzz::measured_table {

STRATA_FUZZ_TARGET(measured_runs) {
  const std::string text = text_of(bytes);
  const auto runs = unless_refused("input.csv", [&] { return parse_measured_runs(text, "input.csv"); });
  if (!runs) return;
  require(!runs->rows.empty(), "a table without rows");
  for (const MeasuredRun& row : runs->rows) {
    require(row.measured > 0.0 && row.run.num_ranks() > 0, "a run that took no time");
  }
}

}  // namespace strata::fuzz::measured_table
