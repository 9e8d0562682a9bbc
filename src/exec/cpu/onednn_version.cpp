#include "exec/cpu/onednn_version.hpp"

#include <fmt/core.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "exec/cpu/kernels/f32_copy.hpp"

namespace strata::cpu {

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

std::string bf16_products() { return dnnl_takes_bf16() ? "native" : "f32"; }

}  // namespace strata::cpu
