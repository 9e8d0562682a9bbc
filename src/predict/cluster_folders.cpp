#include "predict/cluster_folders.hpp"

#include "config/cluster_files.hpp"
#include "predict/shipped_folder.hpp"

namespace strata::predict {

std::vector<std::filesystem::path> cluster_folders(const std::filesystem::path& start) {
  std::vector<std::filesystem::path> folders = cluster_folders_above(start);
  const std::vector<std::filesystem::path> here = cluster_folders_above(std::filesystem::current_path());
  folders.insert(folders.end(), here.begin(), here.end());
  folders.push_back(shipped_folder() / "experiments" / "clusters");
  return folders;
}

}  // namespace strata::predict
