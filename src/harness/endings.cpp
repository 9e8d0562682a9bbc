/// @file
/// What the harness knows of ends that attempts could not name, in a file beside the manifests.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "harness/sweep_state.hpp"
#include "harness/whole_file.hpp"
#include "results/json_integer.hpp"
#include "results/status.hpp"

namespace strata::harness {
namespace {

using Json = nlohmann::ordered_json;
using Endings = std::map<std::pair<std::string, int>, std::pair<std::string, std::string>>;

std::string text_at(const Json& json, const std::string& key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Empty where there are none. What cannot be read is passed over, and is gone when the file is written anew.
Endings read_endings(const std::filesystem::path& file) {
  std::ifstream stream(file);
  const Json json = Json::parse(std::string{std::istreambuf_iterator<char>(stream), {}}, nullptr, false);
  Endings endings;
  if (!json.is_array()) return endings;
  for (const Json& e : json) {
    if (!e.is_object() || !e.contains("attempt")) continue;
    try {
      const int attempt = results::json_integer<int>(e["attempt"], "attempt");
      endings[{text_at(e, "point"), attempt}] = {text_at(e, "status"), text_at(e, "message")};
    } catch (const UserError&) {
      continue;
    }
  }
  return endings;
}

}  // namespace

void record_endings(const std::filesystem::path& experiment_folder, const SweepState& state) {
  const std::filesystem::path file = experiment_folder / "submissions" / "endings.json";
  const Endings before = read_endings(file);
  Endings endings = before;
  for (const Ending& ending : state.endings) {
    auto& [status, message] = endings[{ending.point_id, ending.attempt}];
    if (status == results::to_string(results::Status::node_failure)) continue;
    status = results::to_string(ending.status);
    message = ending.message;
  }
  if (endings == before) return;
  Json json = Json::array();
  for (const auto& [attempt, end] : endings) {
    json.push_back(
        {{"point", attempt.first}, {"attempt", attempt.second}, {"status", end.first}, {"message", end.second}});
  }
  write_whole(file, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace strata::harness
