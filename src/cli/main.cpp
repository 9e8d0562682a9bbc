/// @file
/// The command line: what holds for all verbs, and exit codes. Read this file first, then the verb's, <name>_verb.cpp.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <sstream>

#include "base/console.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/one_line.hpp"
#include "cli/verb.hpp"
#include "predict/provenance.hpp"

namespace {

using namespace strata;

int call_verb(int argc, char** argv) {
  const Environment environment = read_environment();
  CLI::App app{"strata: plan, run and record distributed-training strategies, head to head on the same kernels"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "strata " + predict::version_and_commit());
  app.failure_message([](const CLI::App*, const CLI::Error& e) {
    return fmt::format("strata: {}; see --help\n", printable(e.what()));
  });
  app.footer(
      "Example:      mpiexec -n 2 strata run experiments/first.toml\n"
      "Every verb:   strata VERB --help\n"
      "Exit codes:   0 good, 1 some point failed, 2 bad input, 3 out of memory or refused, 70 a bug of strata's");
  int code = exit_ok;
  const cli::CommandLine line{.app = app, .argc = argc, .argv = argv, .environment = environment, .exit_code = code};
  for (const cli::Verb& verb : cli::all_verbs()) verb.add(line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::ostringstream output, error;
    const int parsed = app.exit(e, output, error);
    code = parsed == 0 ? int{exit_ok} : int{exit_bad_input};
    if (environment.launcher_rank == 0) {  // every rank reads the same words; the first speaks
      put_output(output.str());
      put_error(error.str());
    }
  }
  finish_output();
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  strata::occupy_standard_streams();
  try {
    return call_verb(argc, argv);
  } catch (const strata::UserError& e) {
    strata::say_error("strata: {}\n", printable(e.what()));
    return exit_bad_input;
  } catch (const strata::Unsupported& e) {
    strata::say_error("strata: refused: {}\n", printable(e.what()));
    return exit_refused;
  } catch (const strata::OutOfMemory& e) {
    strata::say_error("strata: {}\n", printable(e.what()));
    return exit_refused;
  } catch (const std::exception& e) {
    strata::say_error("strata: bug: {}\n", printable(e.what()));
    return exit_internal;
  }
}
