/// @file
/// `strata compare`, which lives in the Python package.

#include "cli/analysis_package.hpp"
#include "cli/verb.hpp"

namespace strata::cli {
namespace {

void add_compare(const CommandLine& line) {
  add_analysis_verb(
      line, "compare",
      "which strategy is faster: RESULTS --baseline ddp --candidate zero1, or two results; --picture draws it");
}

}  // namespace

Verb compare_verb() { return {.place = 1800, .add = add_compare}; }

}  // namespace strata::cli
