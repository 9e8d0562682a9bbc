#include "base/dtype.hpp"

#include <fmt/core.h>

#include "base/error.hpp"

namespace strata {

DType parse_dtype(std::string_view text) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8}) {
    if (to_string(dtype) == text) {
      return dtype;
    }
  }
  throw UserError(fmt::format("unknown dtype `{}`; accepted: f32, bf16, i32, u8", text));
}

}  // namespace strata
