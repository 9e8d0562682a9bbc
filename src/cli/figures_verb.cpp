/// @file
/// `strata figures`, which lives in the Python package.

#include "cli/analysis_package.hpp"
#include "cli/verb.hpp"

namespace strata::cli {
namespace {

void add_figures(const CommandLine& line) {
  add_analysis_verb(line, "figures", "draw scaling, MFU, time, memory and loss figures of a sweep");
}

}  // namespace

Verb figures_verb() { return {.place = 1600, .add = add_figures}; }

}  // namespace strata::cli
