#pragma once

/// @file
/// Waiting for a non-blocking MPI operation without occupying a core.

#include <span>

#include "comm/mpi/mpi_check.hpp"

namespace strata::comm {

class World;

/// Returns when all @p requests are complete. Polls and sleeps in between: an eighth of what it has waited so far, at
/// least 10 µs and at most 1 ms.
/// @throws CommunicationError if MPI fails or, where @p world is given, when a rank of this node has died: what had
/// already arrived by then is still accepted.
void wait_sleeping(std::span<MPI_Request> requests, const World* world);
void wait_sleeping(MPI_Request& request, const World* world);

/// MPI_Comm_dup, collective over @p communicator; ranks that come later are waited for asleep. The new communicator
/// returns its errors.
/// @throws CommunicationError as wait_sleeping().
MPI_Comm duplicate_sleeping(MPI_Comm communicator, const World* world);

}  // namespace strata::comm
