/// @file
/// What the harness knows of ends that attempts could not name, in a file beside the manifests.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/console.hpp"
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

/// Nobody writes into the results of others, even where they could.
bool is_own(const std::filesystem::path& folder) {
  struct stat found {};
  return ::stat(folder.c_str(), &found) == 0 && found.st_uid == ::geteuid();
}

}  // namespace

void record_endings(const std::filesystem::path& experiment_folder, const SweepState& state) {
  const std::filesystem::path file = experiment_folder / "submissions" / "endings.json";
  const Endings before = read_endings(file);
  // A node that was lost is up again later, and nothing else remembers it. All else is concluded anew: what was silent
  // for long may have gone on.
  Endings endings;
  for (const auto& [attempt, end] : before) {
    if (end.first == results::to_string(results::Status::node_failure)) endings.emplace(attempt, end);
  }
  for (const Ending& ending : state.endings) {
    endings.try_emplace({ending.point_id, ending.attempt}, results::to_string(ending.status), ending.message);
  }
  if (endings == before || !is_own(file.parent_path())) return;
  Json json = Json::array();
  for (const auto& [attempt, end] : endings) {
    json.push_back(
        {{"point", attempt.first}, {"attempt", attempt.second}, {"status", end.first}, {"message", end.second}});
  }
  try {
    write_whole(file, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const UserError& error) {
    say_error("strata: warning: how attempts ended that could not say so is not kept: {}\n", error.what());
  }
}

}  // namespace strata::harness
