#pragma once

/// @file
/// Where an HDF5 file says that it ends. HDF5 writes that last in a flush, after what refers to places behind the end
/// that the file had before: a process that is killed in between leaves a file whose data no reader takes. So the file
/// says beforehand that it ends behind all that the flush may write.

#include <cstdint>

#include "results/file_descriptor.hpp"

namespace strata::results {

/// Gives @p file, of HDF5's first format and open for reading and writing, @p end bytes, and writes that into its
/// superblock. Between flushes of HDF5, which writes its own end with the next one that changes it.
/// @throws UserError naming the file where the system refuses; InternalError where it is of another format.
void announce_end(const FileDescriptor& file, std::int64_t end);

}  // namespace strata::results
