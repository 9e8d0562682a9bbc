/// @file
/// `strata table`, which lives in the Python package.

#include "cli/analysis_package.hpp"
#include "cli/verb.hpp"

namespace strata::cli {
namespace {

void add_table(const CommandLine& line) { add_analysis_verb(line, "table", "a short table of a sweep"); }

}  // namespace

Verb table_verb() { return {.place = 1700, .add = add_table}; }

}  // namespace strata::cli
