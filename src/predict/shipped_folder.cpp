#include "predict/shipped_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "predict/build_facts.hpp"

namespace strata::predict {
namespace {

namespace fs = std::filesystem;

/// Whether who made @p folder is to be believed as who made the executable is: an executable that was copied into a
/// folder of /tmp has a /tmp/share/strata beside it that anybody may have put there.
bool belongs_to_the_executable(const fs::path& folder) {
  struct stat binary {};
  struct stat found {};
  if (::stat("/proc/self/exe", &binary) != 0 || ::stat(folder.c_str(), &found) != 0) return false;
  const bool is_trusted = found.st_uid == 0 || found.st_uid == ::geteuid() || found.st_uid == binary.st_uid;
  return is_trusted && (found.st_mode & S_IWOTH) == 0;
}

bool is_below(const fs::path& path, const fs::path& folder) {
  const fs::path beside = path.lexically_relative(folder);
  return !beside.empty() && *beside.begin() != "..";
}

}  // namespace

fs::path shipped_folder() {
  const fs::path binary = fs::read_symlink("/proc/self/exe");
  const fs::path installed = binary.parent_path().parent_path() / "share" / "strata";
  if (belongs_to_the_executable(installed)) return installed;
  const fs::path source = STRATA_SOURCE_FOLDER;
  // Who may write a folder above the executable may replace that too.
  std::error_code missing;
  if (is_below(binary, fs::weakly_canonical(source, missing)) || belongs_to_the_executable(source)) return source;
  // Where nothing is, nothing is found, and whoever looks says what.
  if (!fs::exists(installed, missing) && !fs::exists(source, missing)) return source;
  throw UserError(
      fmt::format("{} has no installation: neither {} nor {} is a folder of its owner, this user or root "
                  "that nobody else may write",
                  binary.string(), installed.string(), source.string()));
}

}  // namespace strata::predict
