#include "cli/analysis_package.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/error.hpp"
#include "harness/queue_view.hpp"
#include "predict/shipped_folder.hpp"

namespace strata::cli {
namespace {

std::vector<char*> null_terminated(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Makes @p text what the next program reads as standard input: an unnamed file, which unlike a pipe holds all of it.
void become_standard_input(const std::string& text) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0 ||
      lseek(fileno(file), 0, SEEK_SET) != 0 || dup2(fileno(file), STDIN_FILENO) < 0) {
    throw UserError(fmt::format("a temporary file cannot be written: {}", std::strerror(errno)));
  }
}

auto find_variable(std::vector<std::string>& variables, const std::string& name) {
  return std::find_if(variables.begin(), variables.end(),
                      [&](const std::string& variable) { return variable.starts_with(name + "="); });
}

void set_variable(std::vector<std::string>& variables, const std::string& name, const std::string& value) {
  const auto found = find_variable(variables, name);
  if (found == variables.end()) {
    variables.push_back(name + "=" + value);
  } else {
    *found = name + "=" + value;
  }
}

/// @p package and then what the user's PYTHONPATH names. An empty entry there, as of `export PYTHONPATH=$PYTHONPATH:x`
/// where nothing was set before, would mean the working directory.
std::string python_path(const std::string& package, std::vector<std::string>& variables) {
  std::string path = package;
  const auto found = find_variable(variables, "PYTHONPATH");
  if (found == variables.end()) return path;
  std::istringstream folders(found->substr(std::strlen("PYTHONPATH=")));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) path += ":" + folder;
  }
  return path;
}

}  // namespace

int start_analysis(const std::vector<std::string>& package_arguments, const Environment& environment,
                   const std::string& input) {
  namespace fs = std::filesystem;
  // The environment that the setup script makes in the installation; else the caller's python3.
  const fs::path own = predict::shipped_folder() / ".venv/bin/python";
  const std::string python = fs::exists(own) ? own.string() : "python3";
  // What the harness knows of the attempts that are about to be read.
  for (const std::string& word : package_arguments) {
    if (fs::is_directory(fs::path(word) / "submissions")) {
      // Where what was submitted cannot be read, which is said, the attempts can.
      const harness::SweepState state = harness::state_with_queue(word, environment);
      if (!state.manifests.empty()) harness::record_endings(word, state);
    }
  }
  std::vector<std::string> words = {python, "-m", "strata_analysis"};
  words.insert(words.end(), package_arguments.begin(), package_arguments.end());
  // The package that belongs to this binary, before any other of its name.
  std::vector<std::string> variables = environment.variables;
  const std::string path = python_path((predict::shipped_folder() / "analysis").string(), variables);
  set_variable(variables, "PYTHONPATH", path);
  set_variable(variables, "PYTHONSAFEPATH", "1");
  if (!input.empty()) become_standard_input(input);
  execvpe(python.c_str(), null_terminated(words).data(), null_terminated(variables).data());
  throw UserError(fmt::format("{} cannot be started: {}; jobscripts/setup.sh makes the Python environment", python,
                              std::strerror(errno)));
}

void add_analysis_verb(const CommandLine& line, const std::string& name, const std::string& help) {
  CLI::App* verb = line.app.add_subcommand(name, help);
  verb->prefix_command();
  verb->set_help_flag();  // the package knows the verb's options
  verb->callback([line, verb, name] {
    std::vector<std::string> words = {name};
    const std::vector<std::string> rest = verb->remaining();
    words.insert(words.end(), rest.begin(), rest.end());
    line.exit_code = start_analysis(words, line.environment);
  });
}

}  // namespace strata::cli
