#include "exec/cpu/onednn_version.hpp"

#include <fmt/core.h>

#include <oneapi/dnnl/dnnl.hpp>

namespace strata::cpu {

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace strata::cpu
