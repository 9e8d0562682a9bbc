#pragma once

/// @file
/// Points that a submission did not queue, since planning them says that they cannot start: a JSON file beside its
/// manifests, `<results>/<experiment>/submissions/<n>/left-out.json`.

#include <filesystem>
#include <string>
#include <vector>

#include "results/status.hpp"

namespace strata::harness {

struct LeftOutPoint {
  std::string point_id;
  std::string axes;  ///< as in manifests
  results::Status status = results::Status::refused;
  std::string message;
  bool operator==(const LeftOutPoint&) const = default;
};

std::string to_json(const std::vector<LeftOutPoint>& points);
/// @throws UserError naming @p file_name: not such a file, or one of another version.
std::vector<LeftOutPoint> parse_left_out(const std::string& text, const std::string& file_name);

/// Of all submissions below @p experiment_folder, each point once, as the last of them has it. @throws UserError for a
/// file that cannot be read.
std::vector<LeftOutPoint> read_left_out(const std::filesystem::path& experiment_folder);
/// Nothing is written where there are none. @throws UserError.
void write_left_out(const std::filesystem::path& submission_folder, const std::vector<LeftOutPoint>& points);

/// A line a reason, see by_reason(); empty where there are none.
std::string to_text(const std::vector<LeftOutPoint>& points);

}  // namespace strata::harness
