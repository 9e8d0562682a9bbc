#pragma once

/// @file
/// Where a name is looked up: in folders of the user's own, then among what comes with the installation. Never in a
/// folder that somebody else may write: what is found there ends up in job scripts.

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace strata {

struct LookUp {
  std::map<std::string, std::filesystem::path> files{};  ///< `*.toml` by their names without `.toml`
  std::vector<std::string> left_out{};  ///< folders, and files in the others, that are not used, each with its reason
};

/// @param own folders that are the user's; of two files with one name that in the first has its way. Without folders
/// that others may write, files that others may write, and folders that do not exist. @param shipped comes last, and is
/// trusted as this executable is.
LookUp look_up_in(std::span<const std::filesystem::path> own, const std::filesystem::path& shipped);

/// Who may change @p path, a file or what is in a folder, besides this user and root, in words; empty: nobody. Every
/// folder above counts, but those with the sticky bit, as /tmp, where nobody may replace what is another's. A group of
/// the user's own name that names no other members is the user. A symbolic link counts as what it leads to.
std::string who_else_may_write(const std::filesystem::path& path);

/// "not used: <path> (<reason>), ..." or nothing.
std::string not_used(const LookUp& look_up);

}  // namespace strata
