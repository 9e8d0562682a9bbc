#include "config/measured_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "base/error.hpp"
#include "base/near_name.hpp"

namespace strata {
namespace {

struct CountColumn {
  std::string_view name;
  std::int64_t TransformerRun::*field;
  bool is_needed;
};
constexpr std::array count_columns = {
    CountColumn{"global_batch", &TransformerRun::global_batch, true},
    CountColumn{"micro_batch", &TransformerRun::micro_batch, true},
    CountColumn{"hidden_size", &TransformerRun::hidden_size, true},
    CountColumn{"attention_heads", &TransformerRun::attention_heads, true},
    CountColumn{"layers", &TransformerRun::layers, true},
    CountColumn{"sequence_length", &TransformerRun::sequence_length, true},
    CountColumn{"tensor_parallelism", &TransformerRun::tensor, true},
    CountColumn{"data_parallelism", &TransformerRun::data, true},
    CountColumn{"pipeline_parallelism", &TransformerRun::pipeline, true},
    CountColumn{"vocabulary_size", &TransformerRun::vocabulary_size, false},
    CountColumn{"virtual_stages", &TransformerRun::virtual_stages, false},
};
constexpr std::array quantities = {MeasuredQuantity::iteration_time_ms, MeasuredQuantity::activation_bytes_per_layer,
                                   MeasuredQuantity::activation_bytes};
constexpr std::string_view num_gpus_column = "num_gpus";

std::vector<std::string> known_columns() {
  std::vector<std::string> names = {std::string(num_gpus_column)};
  for (const CountColumn& column : count_columns) names.emplace_back(column.name);
  for (const char* name : {"recomputation", "sequence_parallel", "parameters_billion", "name"})
    names.emplace_back(name);
  for (const MeasuredQuantity quantity : quantities) names.emplace_back(to_string(quantity));
  return names;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  const std::size_t begin = text.find_first_not_of(blank);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = line.find(',', begin);
    cells.push_back(trimmed(line.substr(begin, comma == std::string_view::npos ? comma : comma - begin)));
    if (comma == std::string_view::npos) return cells;
    begin = comma + 1;
  }
}

/// Where a message points to: "file:line: ".
struct Place {
  std::string_view file;
  int line;
  [[noreturn]] void fail(std::string_view column, const std::string& message) const {
    throw UserError(fmt::format("{}:{}: {}: {}", file, line, column, message));
  }
};

template <class Number>
Number number(std::string_view cell, std::string_view column, const Place& place, std::string_view accepted) {
  Number value{};
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size()) {
    place.fail(column, cell.empty() ? fmt::format("empty; accepted: {}", accepted)
                                    : fmt::format("\"{}\" where {} is accepted", cell, accepted));
  }
  return value;
}

/// The header: which column stands where.
class Columns {
 public:
  Columns(std::string_view line, const Place& place) : names_(cells_of(line)) {
    const std::vector<std::string> known = known_columns();
    for (auto name = names_.begin(); name != names_.end(); ++name) {
      if (std::find(known.begin(), known.end(), *name) == known.end()) {
        place.fail(*name,
                   fmt::format("unknown column{}; accepted: {}", did_you_mean(*name, known), fmt::join(known, ", ")));
      }
      if (std::find(names_.begin(), name, *name) != name) place.fail(*name, "a column of this name stands before it");
    }
    require(num_gpus_column, place);
    for (const CountColumn& column : count_columns) {
      if (column.is_needed) require(column.name, place);
    }
    std::vector<std::string_view> measured;
    for (const MeasuredQuantity q : quantities) {
      if (has(to_string(q))) {
        measured.push_back(to_string(q));
        quantity = q;
      }
    }
    if (measured.size() != 1) {
      place.fail(
          "the measured quantity",
          fmt::format("{} columns; accepted: one of iteration_time_ms, activation_bytes_per_layer, activation_bytes",
                      measured.size()));
    }
  }

  bool has(std::string_view name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }
  std::size_t size() const { return names_.size(); }
  /// @param name is one of them.
  std::string_view cell(std::span<const std::string_view> cells, std::string_view name) const {
    return cells[static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin())];
  }

  MeasuredQuantity quantity = MeasuredQuantity::iteration_time_ms;

 private:
  void require(std::string_view name, const Place& place) const {
    if (!has(name)) place.fail(name, "missing column");
  }

  std::vector<std::string_view> names_;
};

Recomputation recomputation_of(std::string_view cell, const Place& place) {
  for (const Recomputation r : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    if (cell == to_string(r)) return r;
  }
  place.fail("recomputation", fmt::format("\"{}\" where none, selective or full is accepted", cell));
}

MeasuredRun parse_row(std::string_view line, const Columns& columns, const Place& place) {
  const std::vector<std::string_view> cells = cells_of(line);
  if (cells.size() != columns.size()) {
    throw UserError(
        fmt::format("{}:{}: {} values under {} columns", place.file, place.line, cells.size(), columns.size()));
  }
  MeasuredRun row;
  row.line = place.line;
  const auto count = [&](std::string_view name) {
    const auto value = number<std::int64_t>(columns.cell(cells, name), name, place, "an integer >= 1");
    if (value < 1 || value > largest_run_count) {
      place.fail(name, fmt::format("{} is out of range; accepted: 1 to {}", value, largest_run_count));
    }
    return value;
  };
  for (const CountColumn& column : count_columns) {
    if (columns.has(column.name)) row.run.*column.field = count(column.name);
  }
  if (const std::int64_t num_gpus = count(num_gpus_column); num_gpus != row.run.num_ranks()) {
    place.fail(num_gpus_column,
               fmt::format("{}, but tensor_parallelism x data_parallelism x pipeline_parallelism = {} x {} x {}",
                           num_gpus, row.run.tensor, row.run.data, row.run.pipeline));
  }
  if (columns.has("recomputation")) {
    row.recomputation = recomputation_of(columns.cell(cells, "recomputation"), place);
    row.run.recomputation = *row.recomputation;
  }
  if (columns.has("sequence_parallel")) {
    const std::string_view cell = columns.cell(cells, "sequence_parallel");
    if (cell != "yes" && cell != "no") {
      place.fail("sequence_parallel", fmt::format("\"{}\" where yes or no is accepted", cell));
    }
    row.run.sequence_parallel = cell == "yes";
  }
  const std::string_view measured = to_string(columns.quantity);
  row.measured = number<double>(columns.cell(cells, measured), measured, place, "a number > 0");
  if (!(row.measured > 0.0) || std::isinf(row.measured)) {
    place.fail(measured, fmt::format("{} is out of range; accepted: a finite number > 0", row.measured));
  }
  return row;
}

}  // namespace

std::string_view to_string(MeasuredQuantity quantity) {
  switch (quantity) {
    case MeasuredQuantity::iteration_time_ms: return "iteration_time_ms";
    case MeasuredQuantity::activation_bytes_per_layer: return "activation_bytes_per_layer";
    case MeasuredQuantity::activation_bytes: return "activation_bytes";
  }
  throw InternalError("no such quantity");
}

MeasuredRuns parse_measured_runs(std::string_view text, std::string_view file_name) {
  if (text.find('\0') != std::string_view::npos) {
    throw UserError(fmt::format("{}: not a text file; accepted: CSV", file_name));
  }
  MeasuredRuns runs;
  std::optional<Columns> columns;
  Place place{file_name, 0};
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
    ++place.line;
    if (line.empty() || line.front() == '#') continue;
    if (!columns) {
      columns.emplace(line, place);
      runs.quantity = columns->quantity;
    } else {
      runs.rows.push_back(parse_row(line, *columns, place));
    }
  }
  if (runs.rows.empty()) {
    throw UserError(fmt::format("{}: no rows; accepted: a line of column names, then one run a line", file_name));
  }
  return runs;
}

}  // namespace strata
