#pragma once

/// @file
/// How an exception or a point ends: failure class and exit code. The only place that knows both.

#include <exception>
#include <string>
#include <vector>

#include "base/error_kind.hpp"
#include "results/status.hpp"

namespace strata::results {

struct Outcome {
  Status status = Status::ok;
  std::string message;
};

/// How a run ends that an error of @p kind stops.
Status status_of(ErrorKind kind);

/// The class of @p error, an exception in flight or caught.
Outcome outcome_of(const std::exception& error);

/// True if @p status is among the words of an experiment's `expect`.
bool is_expected(const std::vector<std::string>& expect, Status status);

/// Exit code of a run of one point that ended with @p status.
int exit_code_of(Status status);

}  // namespace strata::results
