#include "app/outcome.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace strata::app {

Outcome outcome_of(const std::exception& error) {
  using results::Status;
  const auto is = [&]<typename T>() { return dynamic_cast<const T*>(&error) != nullptr; };
  if (is.operator()<OutOfMemory>()) return {Status::oom, error.what()};
  if (is.operator()<Unsupported>()) return {Status::refused, error.what()};
  if (is.operator()<CommunicationError>()) return {Status::communication_error, error.what()};
  if (is.operator()<LaunchMismatch>()) return {Status::launcher_mismatch, error.what()};
  if (is.operator()<UserError>()) return {Status::recording_error, error.what()};
  return {Status::bug, error.what()};
}

bool is_expected(const std::vector<std::string>& expect, results::Status status) {
  return std::ranges::find(expect, results::to_string(status)) != expect.end();
}

int exit_code_of(results::Status status) {
  switch (status) {
    case results::Status::ok: return exit_ok;
    case results::Status::oom:
    case results::Status::refused: return exit_refused;
    case results::Status::launcher_mismatch: return exit_bad_input;
    case results::Status::recording_error: return exit_bad_input;
    case results::Status::bug: return exit_internal;
    case results::Status::running:
    case results::Status::timeout:
    case results::Status::preempted:
    case results::Status::hang:
    case results::Status::node_failure:
    case results::Status::communication_error:
    case results::Status::wrong_answer:
    case results::Status::killed: return exit_some_failed;
  }
  return exit_internal;
}

}  // namespace strata::app
