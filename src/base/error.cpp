#include "base/error.hpp"

#include <fmt/core.h>

namespace strata::detail {

void fail_invariant(const char* expression, const std::string& message, Where where) {
  throw InternalError(fmt::format("{}:{}: invariant `{}` broken: {}", where.file, where.line, expression, message));
}

}  // namespace strata::detail
