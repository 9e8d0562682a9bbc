#pragma once

/// @file
/// Verbs of the Python package: collect, and what draws. They live there once; strata finds the interpreter and hands
/// over.

#include <string>
#include <vector>

#include "base/environment.hpp"
#include "cli/verb.hpp"

namespace strata::cli {

/// Replaces this process. @param package_arguments e.g. {"collect", "results/x"}. @param input its standard input;
/// empty: that of this process.
int start_analysis(const std::vector<std::string>& package_arguments, const Environment& environment,
                   const std::string& input = "");

/// A verb that is the package's as it stands, with whatever follows it.
void add_analysis_verb(const CommandLine& line, const std::string& name, const std::string& help);

}  // namespace strata::cli
