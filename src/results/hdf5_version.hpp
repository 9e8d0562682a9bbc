#pragma once

/// @file
/// The version of the HDF5 library that runs, for the record.

#include <string>

namespace strata::results {

/// "1.10.8", of the library linked.
std::string hdf5_version();

}  // namespace strata::results
