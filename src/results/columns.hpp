#pragma once

/// @file
/// The tables of the results file: for each row type its columns, with name, units and the member that holds the value.
/// The C++ twin of results-schema/schema-1.toml; a test compares the two and a file really written. HDF5 and JSONL are
/// both written from these tables, so they cannot differ.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/collective.hpp"
#include "results/rows.hpp"
#include "results/status.hpp"

namespace strata::results {

inline constexpr std::string_view schema_name = "strata-results";
inline constexpr std::string_view schema_version = "1.16";

/// One kind's number of a member that has one per collective. Called with a row as a pointer to member is by
/// std::invoke, so that who reads columns need not tell the two apart.
template <class Row>
struct OfCollective {
  std::array<std::int64_t, num_collectives> Row::*member;
  Collective kind;
  const std::int64_t& operator()(const Row& row) const { return (row.*member)[static_cast<std::size_t>(kind)]; }
};

template <class Row>
struct Column {
  std::string name;
  std::string_view units;  ///< UDUNITS spelling: "s", "byte", "1"; empty for text and enums
  /// Each alternative gives a row's value by std::invoke.
  std::variant<double Row::*, std::int64_t Row::*, std::string Row::*, StepPhase Row::*, Status Row::*,
               OfCollective<Row>>
      member;
};

/// The type of the values that an alternative of Column<Row>::member gives.
template <class Row, class Member>
using ColumnValue = std::remove_cvref_t<std::invoke_result_t<const Member&, const Row&>>;

/// The kinds that have a column of sent bytes, in the columns' order: all but recv, the last one, which sends nothing.
inline constexpr auto sending_collectives = [] {
  std::array<Collective, num_collectives - 1> kinds{};
  for (std::size_t k = 0; k < kinds.size(); ++k) kinds[k] = static_cast<Collective>(k);
  return kinds;
}();

/// Name of the column, and of the prediction, of the bytes sent in collectives of @p kind: "all_reduce_sent_bytes".
std::string sent_bytes_column(Collective kind);

/// What /summary holds, one scalar dataset a member. Written when the attempt ends.
struct Summary {
  Status status = Status::running;
  std::string message;
  std::string parameter_checksum;
  std::int64_t num_warmup_steps = 0;
  std::int64_t num_measured_steps = 0;
  std::int64_t num_fill_steps = 0;
  std::int64_t num_drain_steps = 0;
  double median_step_seconds = unknown;
  double median_compute_seconds = unknown;
  double median_communication_seconds = unknown;
  double median_exposed_communication_seconds = unknown;
  double first_loss = unknown;
  double last_loss = unknown;
  std::int64_t arena_peak_bytes = 0;
  std::int64_t outside_arena_peak_bytes = 0;
  double recording_seconds = unknown;
  double recording_cpu_seconds = unknown;
};

std::span<const Column<StepRow>> step_columns();
std::span<const Column<EventRow>> event_columns();
std::span<const Column<PredictionRow>> prediction_columns();
std::span<const Column<EvaluationRow>> evaluation_columns();
std::span<const Column<MemoryRow>> memory_columns();
std::span<const Column<Summary>> summary_columns();

/// A root attribute. Flags are stored as 0 or 1.
struct Attribute {
  std::string_view name;
  std::variant<std::string, std::int64_t, double, bool, std::vector<std::string>> value;
};

/// Root attributes in the order of the schema. `end_time` is empty until the attempt ends.
std::vector<Attribute> root_attributes(const AttemptFacts& facts, std::int64_t attempt, const std::string& start_time);

/// Medians over the measured steps, plain: intervals are analysis/'s. NaN where there is no measured step.
Summary summarize(std::span<const StepRow> steps);

}  // namespace strata::results
