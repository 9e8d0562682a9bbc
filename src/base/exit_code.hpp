#pragma once

/// @file
/// What the process says with its exit code.

namespace strata {

enum ExitCode : int {
  exit_ok = 0,
  exit_some_failed = 1,  ///< some point failed; `compare`: worse
  exit_bad_input = 2,    ///< file, line, key, accepted values
  exit_refused = 3,      ///< a single point is out of memory or refused
  exit_incomparable = 4,
  exit_internal = 70,  ///< our bug
};

}  // namespace strata
