#include "cli/site_folders.hpp"

#include "predict/shipped_folder.hpp"

namespace strata::cli {

std::vector<std::filesystem::path> site_folders(const std::filesystem::path& start) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  const fs::path first = fs::absolute(start).lexically_normal();
  for (fs::path at = first;; at = at.parent_path()) {
    folders.push_back(at / "jobscripts" / "sites");
    if (at == at.parent_path()) break;
  }
  folders.push_back(predict::shipped_folder() / "jobscripts" / "sites");
  return folders;
}

}  // namespace strata::cli
