#pragma once

/// @file
/// The ways this program can fail. Nothing else is thrown on purpose.

#include <stdexcept>
#include <string>

namespace strata {

/// The user asked for something wrong: bad TOML key, impossible mesh, missing file.
/// Exit code 2. The message names the file, the line and the key to change, and what is accepted.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What was started is not what was asked for: other ranks, other nodes, another executable.
struct LaunchMismatch : UserError {
  using UserError::UserError;
};

/// The request is well formed but this planner, lowering or executor cannot honour it.
/// Never caught in order to run something else instead: a run labelled "zero3" is zero3 or it does
/// not exist. Exit code 3.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// So far: a mode has to compare plans, and nobody has measured what they take.
struct CostsUnknown : Unsupported {
  using Unsupported::Unsupported;
};

/// The device capacity is exceeded. A result of its own ("OOM"), recorded as a point. Exit code 3.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Communication failed or a peer is gone: names the operation, the group and, where known, the missing rank.
struct CommunicationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An invariant of ours is broken. Always a bug. Exit code 70.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

/// Where a check stands. std::source_location is not used: clang 14 cannot parse libstdc++ 12's.
struct Where {
  const char* file;
  int line;
  static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

namespace detail {
[[noreturn]] void fail_invariant(const char* expression, const std::string& message, Where where);
}

}  // namespace strata

/// Check an invariant of ours in every build type. The condition must have no side effect.
#define STRATA_INVARIANT(condition, message)                                            \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      ::strata::detail::fail_invariant(#condition, (message), ::strata::Where::here()); \
    }                                                                                   \
  } while (false)
