#include "harness/job_record.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include "results/file_descriptor.hpp"
#include "results/status.hpp"

namespace strata::harness {

bool JobRun::has_signal(std::string_view name) const {
  return std::find(signals.begin(), signals.end(), name) != signals.end();
}

bool JobRun::was_taken_away() const { return !ended || has_signal("TERM"); }

std::vector<JobRun> parse_job_record(std::string_view text) {
  std::vector<JobRun> runs;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string time, event, first, second;
    words >> time >> event >> first >> second;
    if (event == "start") {
      runs.push_back(
          {.job = first, .nodes = second, .lost_nodes = {}, .signals = {}, .launched = {}, .exit_codes = {}});
    }
    if (runs.empty()) continue;
    JobRun& run = runs.back();
    if (event == "lost") run.lost_nodes.insert(first);
    if (event == "signal") run.signals.push_back(first);
    if (event == "launch") run.launched.push_back(first);
    int code = 0;
    const auto [stop, error] = std::from_chars(second.data(), second.data() + second.size(), code);
    if (event == "exit" && error == std::errc{}) run.exit_codes[first] = code;
    if (event == "end") run.ended = true;
  }
  return runs;
}

std::filesystem::path job_record_file(const Manifest& manifest, std::size_t task) {
  return submission_folder(manifest) / "jobs" / fmt::format("{}.{}.log", manifest.array, task);
}

std::vector<JobRun> read_job_record(const Manifest& manifest, std::size_t task) {
  std::ifstream file(job_record_file(manifest, task));
  return parse_job_record(std::string{std::istreambuf_iterator<char>(file), {}});
}

void note(const std::filesystem::path& record, const std::string& event) {
  const results::FileDescriptor file(record.string(), O_WRONLY | O_APPEND | O_CREAT);
  file.write_all(fmt::format("{} {}\n", results::to_iso_8601(results::unix_seconds_now()), event));
}

}  // namespace strata::harness
