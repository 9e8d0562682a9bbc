/// @file
/// `strata report`, which lives in the Python package.

#include "cli/analysis_package.hpp"
#include "cli/verb.hpp"

namespace strata::cli {
namespace {

void add_report(const CommandLine& line) {
  add_analysis_verb(line, "report", "one self-contained HTML page of a sweep");
}

}  // namespace

Verb report_verb() { return {.place = 1900, .add = add_report}; }

}  // namespace strata::cli
