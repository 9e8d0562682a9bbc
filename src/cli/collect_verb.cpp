/// @file
/// `strata collect`, which lives in the Python package.

#include "cli/analysis_package.hpp"
#include "cli/verb.hpp"

namespace strata::cli {
namespace {

void add_collect(const CommandLine& line) {
  add_analysis_verb(line, "collect", "merge the attempts of a sweep into one file (HDF5, CSV, Parquet)");
}

}  // namespace

Verb collect_verb() { return {.place = 1500, .add = add_collect}; }

}  // namespace strata::cli
