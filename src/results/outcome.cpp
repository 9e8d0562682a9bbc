#include "results/outcome.hpp"

#include <algorithm>

#include "base/exit_code.hpp"

namespace strata::results {

Status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::out_of_memory: return Status::oom;
    case ErrorKind::unsupported: return Status::refused;
    case ErrorKind::communication_error: return Status::communication_error;
    case ErrorKind::launch_mismatch: return Status::launcher_mismatch;
    case ErrorKind::user_error: return Status::recording_error;
    case ErrorKind::internal_error: return Status::bug;
  }
  return Status::bug;
}

Outcome outcome_of(const std::exception& error) { return {status_of(kind_of(error)), error.what()}; }

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
    case Status::diverged:
    case Status::killed: return exit_some_failed;
  }
  return exit_internal;
}

}  // namespace strata::results
