#include "harness/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.hpp"
#include "base/one_line.hpp"
#include "base/read_file.hpp"
#include "harness/json_schema.hpp"
#include "harness/whole_file.hpp"
#include "results/json_integer.hpp"

namespace strata::harness {
namespace {

using Json = nlohmann::ordered_json;
using results::json_integer;
constexpr std::string_view manifest_schema = "strata-manifest";
constexpr int manifest_version = 1;

/// One array a launch keeps ten thousand of them readable: [point, block, order].
Json json_of(const Task& task) {
  Json launches = Json::array();
  for (const Launch& launch : task.launches) launches.push_back({launch.point_id, launch.block, launch.order});
  return {{"block_seed", task.block_seed}, {"one_launch", task.one_launch}, {"launches", std::move(launches)}};
}

std::int64_t count_at(const Json& json, const std::string& key) {
  return json_integer<std::int64_t>(json.at(key), key);
}

/// A folder of this name holds the point: it leads nowhere else.
std::string point_id_of(const Json& json) {
  const auto id = json.get<std::string>();
  const auto is_of_ids = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  if (id.empty() || !std::ranges::all_of(id, is_of_ids)) {
    throw UserError(fmt::format("the point's id \"{}\" is no name of a folder", one_line(id)));
  }
  return id;
}

Task task_of(const Json& json) {
  Task task;
  task.block_seed = count_at(json, "block_seed");
  task.one_launch = json.value("one_launch", false);  // manifests of earlier versions have none
  for (const Json& launch : json.at("launches")) {
    task.launches.push_back({point_id_of(launch.at(0)),
                             json_integer<std::int64_t>(launch.at(1), "the block of a launch"),
                             json_integer<std::int64_t>(launch.at(2), "the order of a launch")});
  }
  return task;
}

}  // namespace

std::string to_json(const Manifest& m) {
  const JobGeometry& g = m.job.geometry;
  Json tasks = Json::array();
  for (const Task& task : m.job.tasks) tasks.push_back(json_of(task));
  const Json json = {{"schema", manifest_schema},
                     {"version", manifest_version},
                     {"experiment_name", m.experiment_name},
                     {"experiment_file", m.experiment_file},
                     {"results_folder", m.results_folder},
                     {"site", m.site},
                     {"has_slurm", m.has_slurm},
                     {"submission", m.submission},
                     {"array", m.array},
                     {"time", m.time},
                     {"token", m.token},
                     {"geometry",
                      {{"nodes", g.nodes},
                       {"ranks_per_node", g.ranks_per_node},
                       {"threads_per_rank", g.threads_per_rank},
                       {"gpus_per_node", g.gpus_per_node},
                       {"time_limit_minutes", g.time_limit_minutes},
                       {"partition", g.partition},
                       {"constraint", g.constraint}}},
                     {"max_running", m.job.max_running},
                     {"tasks", std::move(tasks)},
                     {"point_axes", m.point_axes},
                     {"expects", m.expects}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& file_name) {
  try {
    const Json json = Json::parse(text);
    check_schema(json, manifest_schema, manifest_version);
    Manifest m;
    m.experiment_name = json.at("experiment_name").get<std::string>();
    m.experiment_file = json.at("experiment_file").get<std::string>();
    m.results_folder = json.at("results_folder").get<std::string>();
    m.site = json.at("site").get<std::string>();
    m.has_slurm = json.at("has_slurm").get<bool>();
    m.submission = json_integer<int>(json.at("submission"), "submission");
    m.array = json_integer<int>(json.at("array"), "array");
    m.time = json.at("time").get<std::string>();
    if (json.contains("token")) m.token = json.at("token").get<std::string>();  // older ones have none
    const Json& g = json.at("geometry");
    m.job.geometry = {.nodes = count_at(g, "nodes"),
                      .ranks_per_node = count_at(g, "ranks_per_node"),
                      .threads_per_rank = count_at(g, "threads_per_rank"),
                      .gpus_per_node = count_at(g, "gpus_per_node"),
                      .time_limit_minutes = count_at(g, "time_limit_minutes"),
                      .partition = g.at("partition").get<std::string>(),
                      .constraint = g.at("constraint").get<std::string>()};
    m.job.max_running = count_at(json, "max_running");
    for (const Json& task : json.at("tasks")) m.job.tasks.push_back(task_of(task));
    m.point_axes = json.at("point_axes").get<std::map<std::string, std::string>>();
    m.expects = json.at("expects").get<std::map<std::string, std::vector<std::string>>>();
    return m;
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("{}: not a manifest of strata: {}", file_name, error.what()));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: not a manifest of strata: {}", file_name, error.what()));
  }
}

Manifest read_manifest(const std::filesystem::path& file) {
  return parse_manifest(read_file(file.string()), file.string());
}

std::filesystem::path experiment_folder(const Manifest& manifest) {
  if (!manifest.read_from.empty()) return manifest.read_from;
  return std::filesystem::path(manifest.results_folder) / manifest.experiment_name;
}

std::filesystem::path submission_folder(const Manifest& manifest) {
  return experiment_folder(manifest) / "submissions" / fmt::format("{}", manifest.submission);
}

std::filesystem::path array_file(const Manifest& manifest, const std::string& suffix) {
  return submission_folder(manifest) / fmt::format("array-{}{}", manifest.array, suffix);
}

std::string launch_name(const Manifest& manifest, std::size_t task, std::size_t launch) {
  return fmt::format("{}/{}.{}.{}", manifest.submission, manifest.array, task, launch);
}

std::vector<Manifest> read_manifests(const std::filesystem::path& experiment_folder) {
  namespace fs = std::filesystem;
  std::vector<Manifest> manifests;
  std::error_code missing;
  for (const auto& submission : fs::directory_iterator(experiment_folder / "submissions", missing)) {
    if (submission.path().extension() == ".part") continue;  // whoever wrote it was killed
    for (const auto& entry : fs::directory_iterator(submission.path(), missing)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("array-") || !name.ends_with(".json")) continue;
      try {
        manifests.push_back(read_manifest(entry.path()));
        manifests.back().read_from = experiment_folder;
      } catch (const UserError& error) {
        warn_of_damage(error);
      }
    }
  }
  std::sort(manifests.begin(), manifests.end(), [](const Manifest& a, const Manifest& b) {
    return std::tie(a.submission, a.array) < std::tie(b.submission, b.array);
  });
  return manifests;
}

std::string read_job_id(const Manifest& manifest) {
  std::ifstream file(array_file(manifest, ".jobid"));
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace strata::harness
