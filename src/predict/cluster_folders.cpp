#include "predict/cluster_folders.hpp"

#include <vector>

#include "predict/shipped_folder.hpp"

namespace strata::predict {

LookUp cluster_folders(const std::filesystem::path& start) {
  std::vector<std::filesystem::path> own;
  for (const std::filesystem::path& folder : {std::filesystem::absolute(start), std::filesystem::current_path()}) {
    own.push_back(folder.lexically_normal() / "clusters");
    own.push_back(folder.lexically_normal() / "experiments" / "clusters");
  }
  return look_up_in(own, shipped_folder() / "experiments" / "clusters");
}

}  // namespace strata::predict
