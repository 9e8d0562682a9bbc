#pragma once

/// @file
/// Another program, run to its end.

#include <string>
#include <vector>

namespace strata::harness {

struct CommandResult {
  int exit_code = 0;  ///< 128 + the signal where one ended it; 127: not found
  std::string output;
  std::string error;
};

/// @param words the program, looked up in PATH, and its arguments. @param environment "NAME=value" each: all that the
/// program gets. Standard input is empty. @throws UserError when the system starts no process.
CommandResult run_command(const std::vector<std::string>& words, const std::vector<std::string>& environment);

/// As run_command with this process's standard output and error. @return the exit code.
int run_visibly(const std::vector<std::string>& words, const std::vector<std::string>& environment);

}  // namespace strata::harness
