/// @file
/// Verbs of the Python package: collect, and what draws. They live there once; strata finds the interpreter and hands
/// over.

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "app/outcome.hpp"
#include "app/verbs.hpp"
#include "base/error.hpp"

namespace strata::app {

int start_analysis(const std::vector<std::string>& package_arguments) {
  namespace fs = std::filesystem;
  // The environment that the setup script makes stands beside build/, wherever the binary is called from; else the
  // caller's python3.
  std::string python = "python3";
  const fs::path binary = fs::read_symlink("/proc/self/exe");
  for (fs::path folder = binary.parent_path(); folder != folder.parent_path(); folder = folder.parent_path()) {
    if (fs::exists(folder / ".venv/bin/python")) {
      python = (folder / ".venv/bin/python").string();
      break;
    }
  }
  std::vector<std::string> words = {python, "-m", "strata_analysis"};
  words.insert(words.end(), package_arguments.begin(), package_arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw UserError(fmt::format("{} cannot be started: {}; jobscripts/setup.sh makes the Python environment", python,
                              std::strerror(errno)));
}

}  // namespace strata::app
