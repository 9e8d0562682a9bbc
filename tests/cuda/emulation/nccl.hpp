#pragma once

/// @file
/// What tests do to the emulated NCCL.

#include <nccl.h>

namespace emulation {

/// What ncclCommGetAsyncError says of every communicator.
void set_async_error(ncclResult_t error);
/// Communicators that are registered with, and aborted, since the start.
int num_registered();
int num_aborted();

}  // namespace emulation
