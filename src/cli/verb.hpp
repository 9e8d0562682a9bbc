#pragma once

/// @file
/// A verb of the command line is one file, <name>_verb.cpp: its options, its help, its call. The list of all verbs is
/// generated from the names of these files.

#include <vector>

#include "base/environment.hpp"

namespace CLI {
class App;
}

namespace strata::cli {

/// What a verb adds itself to, and what its call may need.
struct CommandLine {
  CLI::App& app;
  int argc;
  char** argv;
  const Environment& environment;
  int& exit_code;  ///< of the verb that is called, see base/exit_code.hpp; what bad input throws is thrown
};

struct Verb {
  int place;  ///< in --help, which follows the work of a user; hundreds leave room between two
  void (*add)(const CommandLine& line);
};

/// By place.
std::vector<Verb> all_verbs();

}  // namespace strata::cli
