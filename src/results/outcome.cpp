#include "results/outcome.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/exit_code.hpp"

namespace strata::results {

Outcome outcome_of(const std::exception& error) {
  const auto is = [&]<typename T>() { return dynamic_cast<const T*>(&error) != nullptr; };
  if (is.operator()<OutOfMemory>()) return {Status::oom, error.what()};
  if (is.operator()<Unsupported>()) return {Status::refused, error.what()};
  if (is.operator()<CommunicationError>()) return {Status::communication_error, error.what()};
  if (is.operator()<LaunchMismatch>()) return {Status::launcher_mismatch, error.what()};
  if (is.operator()<UserError>()) return {Status::recording_error, error.what()};
  return {Status::bug, error.what()};
}

bool is_expected(const std::vector<std::string>& expect, Status status) {
  return std::ranges::find(expect, to_string(status)) != expect.end();
}

int exit_code_of(Status status) {
  switch (status) {
    case Status::ok: return exit_ok;
    case Status::oom:
    case Status::refused: return exit_refused;
    case Status::launcher_mismatch: return exit_bad_input;
    case Status::recording_error: return exit_bad_input;
    case Status::bug: return exit_internal;
    case Status::running:
    case Status::timeout:
    case Status::preempted:
    case Status::hang:
    case Status::node_failure:
    case Status::communication_error:
    case Status::wrong_answer:
    case Status::killed: return exit_some_failed;
  }
  return exit_internal;
}

}  // namespace strata::results
