#include "predict/shipped_folder.hpp"

#include "predict/build_facts.hpp"

namespace strata::predict {

std::filesystem::path shipped_folder() {
  namespace fs = std::filesystem;
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const fs::path installed = prefix / "share" / "strata";
  return fs::exists(installed) ? installed : fs::path(STRATA_SOURCE_FOLDER);
}

}  // namespace strata::predict
