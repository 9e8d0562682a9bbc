#pragma once

/// @file
/// Every MPI call goes through check(): the error handlers return, and nobody ignores a code.
/// Internal to src/comm, like every header that includes <mpi.h>.

#include <mpi.h>

#include "base/error.hpp"

namespace strata::comm {

/// @throws CommunicationError with the call's name, MPI's own text and the source line, unless @p code is MPI_SUCCESS.
void check(int code, const char* call, Where where = Where::here());

}  // namespace strata::comm
