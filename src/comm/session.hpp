#pragma once

/// @file
/// MPI's life time, and the one way to end a job early. The decision: MPI_THREAD_MULTIPLE, because the communication
/// thread and the rank's own thread both make (non-blocking) calls.

#include <string>

namespace strata::comm {

/// MPI_Init_thread on construction, MPI_Finalize on destruction; error handlers return.
///
/// While an exception unwinds the stack the destructor does nothing: MPI_Finalize would wait for ranks that are blocked
/// in a collective. The caller then ends the job with abort_all().
class Session {
 public:
  /// @throws CommunicationError if MPI does not start or offers less than MPI_THREAD_MULTIPLE.
  Session(int& argc, char**& argv);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  int num_exceptions_at_start_;
};

/// The MPI library's own version line, for the results.
std::string mpi_version();

/// Print one line "strata: rank R: message" and end the whole job with @p exit_code. Safe before MPI_Init and from any
/// thread; of several threads that call it only the first prints.
[[noreturn]] void abort_all(int exit_code, const std::string& message) noexcept;

}  // namespace strata::comm
