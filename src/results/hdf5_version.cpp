#include "results/hdf5_version.hpp"

#include <fmt/core.h>
#include <hdf5.h>

#include "base/error.hpp"

namespace strata::results {

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  STRATA_INVARIANT(H5get_libversion(&major, &minor, &patch) >= 0, "HDF5 knows its version");
  return fmt::format("{}.{}.{}", major, minor, patch);
}

}  // namespace strata::results
