#pragma once

/// @file
/// Tables of measured training runs as CSV: a header line that names the columns, one run a line, lines that begin with
/// '#' are comments. Columns are known by name in any order; an unknown one is an error, so that nothing that changes a
/// run is ever ignored.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/machine/transformer_run.hpp"

namespace strata {

/// What a table measured; its column's name says the unit.
enum class MeasuredQuantity : std::uint8_t {
  iteration_time_ms,
  activation_bytes_per_layer,  ///< kept by one layer, of one micro-batch, on one rank
  activation_bytes,            ///< kept by a rank of the first stage
};
std::string_view to_string(MeasuredQuantity quantity);

struct MeasuredRun {
  TransformerRun run;                          ///< vocabulary_size 0 where the table has no such column
  std::optional<Recomputation> recomputation;  ///< run.recomputation where the table has the column
  double measured = 0.0;                       ///< in the quantity's unit, > 0
  int line = 0;                                ///< in the file
};

struct MeasuredRuns {
  MeasuredQuantity quantity = MeasuredQuantity::iteration_time_ms;
  std::vector<MeasuredRun> rows;
};

/// Columns needed: num_gpus, global_batch, micro_batch, hidden_size, attention_heads, layers, sequence_length,
/// tensor_parallelism, data_parallelism, pipeline_parallelism, and exactly one quantity. Optional: vocabulary_size,
/// virtual_stages, recomputation (none, selective, full), sequence_parallel (yes, no), parameters_billion and name (a
/// remark; both are read past).
/// @throws UserError "file:line: column: what is wrong; what is accepted".
MeasuredRuns parse_measured_runs(std::string_view text, std::string_view file_name);

}  // namespace strata
