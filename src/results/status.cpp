/// @file
/// This file names the statuses, and writes and reads the status file of an attempt.

#include "results/status.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/console.hpp"
#include "base/error.hpp"
#include "results/file_descriptor.hpp"
#include "results/json_integer.hpp"
#include "results/lock_file.hpp"

namespace strata::results {
namespace {

constexpr std::array<std::string_view, num_statuses> words = {"running",
                                                              "ok",
                                                              "oom",
                                                              "refused",
                                                              "timeout",
                                                              "preempted",
                                                              "hang",
                                                              "node_failure",
                                                              "communication_error",
                                                              "wrong_answer",
                                                              "launcher_mismatch",
                                                              "bug",
                                                              "killed",
                                                              "recording_error",
                                                              "diverged"};

std::optional<StatusFile> read_if_present(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return std::nullopt;
  }
  std::ostringstream text;
  text << file.rdbuf();
  try {
    const auto json = nlohmann::json::parse(text.str());
    StatusFile status;
    status.status = parse_status(json.at("status").get<std::string>());
    status.message = json.at("message").get<std::string>();
    status.rank = json_integer<int>(json.at("rank"), "rank");
    status.pid = json_integer<std::int64_t>(json.at("pid"), "pid");
    status.host = json.at("host").get<std::string>();
    status.time = json.at("time").get<std::string>();
    if (json.contains("launch")) {  // older files have no origin
      status.origin = {json.at("launch").get<std::string>(), json.at("job").get<std::string>(),
                       json.at("nodes").get<std::vector<std::string>>()};
    }
    return status;
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("{}: not a status file: {}", path, error.what()));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: not a status file: {}", path, error.what()));
  }
}

constexpr std::chrono::milliseconds patience_for_a_turn{2000};

/// Several survivors may want to say how it ended, and each may be killed while it does: they queue for a lock that
/// goes with its holder, one for all attempts of a point. No ending is lost for want of it: what keeps it from being
/// taken is said, and of several endings that are then written at once the last one stays.
std::optional<LockFile> wait_for_turn(const std::string& path) {
  std::string reason;
  try {
    LockFile lock((std::filesystem::path(path).parent_path() / "status.lock").string());
    const LockState state = lock.take(patience_for_a_turn);
    if (state == LockState::held) return lock;
    if (state == LockState::impossible) return std::nullopt;  // said when the attempt began
    reason = lock.file().path() + ": another process keeps it locked";
  } catch (const UserError& error) {
    reason = error.what();
  }
  say_error("strata: {}: {} is written without a lock, and another ending may replace it\n", reason, path);
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Status status) { return words.at(static_cast<std::size_t>(status)); }

Status parse_status(std::string_view text) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words.at(i) == text) {
      return static_cast<Status>(i);
    }
  }
  std::string accepted;
  for (const std::string_view word : words) {
    accepted += fmt::format("{}{}", accepted.empty() ? "" : ", ", word);
  }
  throw UserError(fmt::format("unknown status `{}`; accepted: {}", text, accepted));
}

bool write_status(const std::string& path, Status status, const std::string& message, int rank,
                  const AttemptOrigin& origin) {
  const std::optional<LockFile> turn = wait_for_turn(path);
  const auto before = read_if_present(path);
  if (before && before->status != Status::running) {
    return false;
  }
  const AttemptOrigin& kept = before ? before->origin : origin;
  const nlohmann::ordered_json json = {{"status", to_string(status)},
                                       {"message", message},
                                       {"rank", rank},
                                       {"pid", static_cast<std::int64_t>(::getpid())},
                                       {"host", host_name()},
                                       {"time", to_iso_8601(unix_seconds_now())},
                                       {"launch", kept.launch},
                                       {"job", kept.job},
                                       {"nodes", kept.nodes}};
  replace_file(path, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
               fmt::format("{}.{}", rank, ::getpid()));
  return true;
}

StatusFile read_status(const std::string& path) {
  auto status = read_if_present(path);
  if (!status) {
    throw UserError(fmt::format("{}: no such status file", path));
  }
  return *std::move(status);
}

void touch_heartbeat(const std::string& path) noexcept { ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

std::string to_iso_8601(double unix_seconds) {
  const auto milliseconds = static_cast<std::int64_t>(std::floor(unix_seconds * 1e3));
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03d}Z", text.data(), milliseconds % 1000);
}

double unix_seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace strata::results
