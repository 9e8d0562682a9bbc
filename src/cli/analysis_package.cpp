#include "cli/analysis_package.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

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

}  // namespace

int start_analysis(const std::vector<std::string>& package_arguments, const Environment& environment,
                   const std::string& input) {
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
  // What the harness knows of the attempts that are about to be read.
  for (const std::string& word : package_arguments) {
    if (fs::is_directory(fs::path(word) / "submissions")) {
      harness::record_endings(word, harness::state_with_queue(word, environment));
    }
  }
  std::vector<std::string> words = {python, "-m", "strata_analysis"};
  words.insert(words.end(), package_arguments.begin(), package_arguments.end());
  // The package that belongs to this binary, before any other of its name.
  std::vector<std::string> variables = environment.variables;
  const std::string package = "PYTHONPATH=" + (predict::shipped_folder() / "analysis").string();
  const auto path = std::find_if(variables.begin(), variables.end(),
                                 [](const std::string& variable) { return variable.starts_with("PYTHONPATH="); });
  if (path == variables.end()) {
    variables.push_back(package);
  } else {
    *path = package + ":" + path->substr(std::strlen("PYTHONPATH="));
  }
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
