#pragma once

/// @file
/// The version of the HDF5 library that runs, for the record.

#include <string>

namespace strata::results {

std::string hdf5_version();

}  // namespace strata::results
