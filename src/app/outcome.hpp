#pragma once

/// @file
/// How an exception or a point ends: failure class and exit code. The only place that knows both.

#include <exception>
#include <string>
#include <vector>

#include "results/status.hpp"

namespace strata::app {

enum ExitCode : int {
  exit_ok = 0,
  exit_some_failed = 1,  ///< some point failed; `compare`: worse
  exit_bad_input = 2,    ///< file, line, key, accepted values
  exit_refused = 3,      ///< a single point is out of memory or refused
  exit_incomparable = 4,
  exit_internal = 70,  ///< our bug
};

struct Outcome {
  results::Status status = results::Status::ok;
  std::string message;
};

/// The class of @p error, an exception in flight or caught.
Outcome outcome_of(const std::exception& error);

/// True if @p status is among the words of an experiment's `expect`.
bool is_expected(const std::vector<std::string>& expect, results::Status status);

/// Exit code of a run of one point that ended with @p status.
int exit_code_of(results::Status status);

}  // namespace strata::app
