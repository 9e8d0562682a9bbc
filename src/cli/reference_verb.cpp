/// @file
/// `strata reference`: every option of an experiment file.

#include <CLI/CLI.hpp>

#include "base/console.hpp"
#include "base/exit_code.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "config/reference.hpp"
#include "predict/strategy_options.hpp"

namespace strata::cli {
namespace {

void add_reference(const CommandLine& line) {
  add_verb(line.app, "reference", "every option of an experiment file, with default and meaning",
           "strata reference > experiment_files.md")
      ->callback([line] {
        say("{}\n## Options of the modes\n{}", reference_markdown(), predict::strategy_reference());
        line.exit_code = exit_ok;
      });
}

}  // namespace

Verb reference_verb() { return {.place = 200, .add = add_reference}; }

}  // namespace strata::cli
