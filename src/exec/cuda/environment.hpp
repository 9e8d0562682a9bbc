#pragma once

/// @file
/// What the driver and NCCL read from the environment when they are first called. Runs and the tests of the device set
/// the same, so that what was tested is what runs.

namespace strata::cuda {

/// Before the first call of the CUDA runtime; variables that the user has set stay as they are.
/// @param num_nccl_ranks ranks whose collectives NCCL may carry on their devices; 1: none.
void set_environment(int num_nccl_ranks);

}  // namespace strata::cuda
