#include "base/look_up.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <system_error>

namespace strata {
namespace {

namespace fs = std::filesystem;

bool is_own_group(gid_t group) {
  const passwd* user = ::getpwuid(::geteuid());
  const struct group* found = ::getgrgid(group);
  if (user == nullptr || found == nullptr || std::string_view(user->pw_name) != found->gr_name) return false;
  for (char** member = found->gr_mem; *member != nullptr; ++member) {
    if (std::string_view(user->pw_name) != *member) return false;
  }
  return true;
}

/// @param is_above it is a folder that holds the one in question, which the sticky bit protects.
std::string who_else_may_write_itself(const fs::path& path, bool is_above) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return fmt::format("{} cannot be looked at", path.string());
  if (found.st_uid != 0 && found.st_uid != ::geteuid()) {
    return fmt::format("{} belongs to user {}", path.string(), found.st_uid);
  }
  if (is_above && (found.st_mode & S_ISVTX) != 0) return "";
  if ((found.st_mode & S_IWOTH) != 0) return fmt::format("everybody may write {}", path.string());
  const bool is_groups = (found.st_mode & S_IWGRP) != 0 && found.st_gid != 0 && !is_own_group(found.st_gid);
  return is_groups ? fmt::format("group {} may write {}", found.st_gid, path.string()) : "";
}

}  // namespace

std::string who_else_may_write(const fs::path& path) {
  std::error_code error;
  fs::path at = fs::canonical(path, error);
  if (error) return fmt::format("{} cannot be looked at", path.string());
  std::string found = who_else_may_write_itself(at, false);
  while (found.empty() && at != at.parent_path()) {
    at = at.parent_path();
    found = who_else_may_write_itself(at, true);
  }
  return found;
}

LookUp look_up_in(std::span<const fs::path> own, const fs::path& shipped) {
  LookUp result;
  const auto is_left_out = [&](const fs::path& path) {
    const std::string others = who_else_may_write(path);
    if (!others.empty()) result.left_out.push_back(fmt::format("{} ({})", path.string(), others));
    return !others.empty();
  };
  const auto add_files = [&](const fs::path& folder, bool is_trusted) {
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
      const fs::path& file = entry.path();
      if (file.extension() != ".toml" || (!is_trusted && is_left_out(file))) continue;
      result.files.emplace(file.stem().string(), file);
    }
  };
  for (const fs::path& folder : own) {
    // By its true name: a link above it might lead elsewhere by the time that a file is read.
    std::error_code missing;
    const fs::path true_name = fs::canonical(folder, missing);
    if (!missing && !is_left_out(true_name)) add_files(true_name, false);
  }
  add_files(shipped, true);
  return result;
}

std::string not_used(const LookUp& look_up) {
  return look_up.left_out.empty() ? "" : fmt::format("not used: {}", fmt::join(look_up.left_out, ", "));
}

}  // namespace strata
