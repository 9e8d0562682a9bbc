#include "harness/left_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "harness/json_schema.hpp"
#include "harness/reasons.hpp"
#include "harness/whole_file.hpp"

namespace strata::harness {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
constexpr std::string_view left_out_schema = "strata-left-out";
constexpr int left_out_version = 1;
constexpr std::string_view file_name_of_all = "left-out.json";

}  // namespace

std::string to_json(const std::vector<LeftOutPoint>& points) {
  Json list = Json::array();
  for (const LeftOutPoint& point : points) {
    list.push_back({{"point", point.point_id},
                    {"axes", point.axes},
                    {"status", results::to_string(point.status)},
                    {"message", point.message}});
  }
  const Json json = {{"schema", left_out_schema}, {"version", left_out_version}, {"points", std::move(list)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<LeftOutPoint> parse_left_out(const std::string& text, const std::string& file_name) {
  const auto refuse = [&](std::string_view why) {
    throw UserError(fmt::format("{}: not a list of points that strata left out: {}", file_name, why));
  };
  std::vector<LeftOutPoint> points;
  try {
    const Json json = Json::parse(text);
    check_schema(json, left_out_schema, left_out_version);
    for (const Json& point : json.at("points")) {
      points.push_back({.point_id = point.at("point").get<std::string>(),
                        .axes = point.at("axes").get<std::string>(),
                        .status = results::parse_status(point.at("status").get<std::string>()),
                        .message = point.at("message").get<std::string>()});
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(error.what());
  } catch (const UserError& error) {
    refuse(error.what());
  }
  return points;
}

std::vector<LeftOutPoint> read_left_out(const fs::path& experiment_folder) {
  std::map<int, fs::path> files;  // by submission
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(experiment_folder / "submissions", missing)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    const fs::path file = entry.path() / file_name_of_all;
    const bool is_whole = error == std::errc{} && end == name.data() + name.size();  // no `.part` of a killed writer
    if (is_whole && fs::exists(file)) files[number] = file;
  }
  std::vector<LeftOutPoint> points;
  std::map<std::string, std::size_t> place;
  for (const auto& [number, file] : files) {
    std::vector<LeftOutPoint> of_submission;
    try {
      of_submission = parse_left_out(read_file(file.string()), file.string());
    } catch (const UserError& error) {
      warn_of_damage(error);
    }
    for (LeftOutPoint& point : of_submission) {
      const auto [at, is_new] = place.try_emplace(point.point_id, points.size());
      if (is_new) {
        points.push_back(std::move(point));
      } else {
        points[at->second] = std::move(point);
      }
    }
  }
  return points;
}

void write_left_out(const fs::path& submission_folder, const std::vector<LeftOutPoint>& points) {
  if (!points.empty()) write_whole(submission_folder / file_name_of_all, to_json(points));
}

std::string to_text(const std::vector<LeftOutPoint>& points) {
  std::vector<Complaint> complaints;
  for (const LeftOutPoint& point : points) {
    complaints.push_back(
        {.state = std::string(results::to_string(point.status)), .message = point.message, .point_id = point.point_id});
  }
  return by_reason(complaints, false);
}

}  // namespace strata::harness
