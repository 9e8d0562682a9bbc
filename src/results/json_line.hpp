#pragma once

/// @file
/// A row as a line of JSONL, written straight into text: rows come by the step, and a tree of JSON values between them
/// and the text takes longer than all else that is done for one.

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "results/columns.hpp"

namespace strata::results {

/// As few digits as give the same bits. NaN and infinities become null, as JSON has no word for them; a whole number
/// keeps its point, so that a column's values are of one type for whoever reads them.
inline void append_json(std::string& line, double value) {
  if (!std::isfinite(value)) {
    line += "null";
    return;
  }
  std::array<char, 32> digits{};
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
  line += text;
  if (text.find_first_of(".e") == std::string_view::npos) line += ".0";
}

inline void append_json(std::string& line, std::int64_t value) {
  std::array<char, 24> digits{};
  line.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

/// Bytes that are no UTF-8 are replaced.
inline void append_json(std::string& line, std::string_view text) {
  line += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// `{"kind":"<kind>","<column>":<value>,…}` and the end of the line, columns in their order.
template <class Row>
std::string json_line(std::string_view kind, std::span<const Column<Row>> columns, const Row& row) {
  std::string line = "{\"kind\":";
  append_json(line, kind);
  for (const Column<Row>& column : columns) {
    line += ",\"";
    line += column.name;  // of the schema: nothing in it needs escaping
    line += "\":";
    std::visit(
        [&]<class Member>(const Member& member) {
          const auto& value = std::invoke(member, row);
          using Value = ColumnValue<Row, Member>;
          if constexpr (std::is_same_v<Value, StepPhase> || std::is_same_v<Value, Status>) {
            append_json(line, to_string(value));
          } else {
            append_json(line, value);
          }
        },
        column.member);
  }
  return line += "}\n";
}

}  // namespace strata::results
