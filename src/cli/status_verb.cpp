/// @file
/// `strata status`: how far a sweep is.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/console.hpp"
#include "base/exit_code.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "harness/queue_view.hpp"

namespace strata::cli {
namespace {

struct StatusArguments {
  std::string results;  ///< `<results>/<experiment>`
  bool all = false;     ///< every point by itself
  bool watch = false;
};

bool under_way(const harness::SweepState& state) {
  return std::any_of(state.units.begin(), state.units.end(), [](const harness::Unit& unit) {
    return unit.progress == harness::Progress::pending || unit.progress == harness::Progress::running;
  });
}

int code_of(const harness::SweepState& state) {
  const bool bad = std::any_of(state.units.begin(), state.units.end(), [](const harness::Unit& unit) {
    return unit.progress == harness::Progress::ended && !unit.good();
  });
  return bad ? exit_some_failed : exit_ok;
}

int show_status(const StatusArguments& arguments, const Environment& environment) {
  // Slurm's controller serves everybody: it is asked every 30 s at first, then ever more seldom.
  std::chrono::seconds pause{30};
  for (;;) {
    const harness::SweepState state = harness::state_with_queue(arguments.results, environment);
    harness::check_submitted(state.manifests, folder_path(arguments.results));
    const bool screen = arguments.watch && isatty(STDOUT_FILENO) == 1;
    if (screen) say("\033[H\033[2J");
    if (arguments.all) {
      say("{}{}\n", to_table(state, environment.colour), summary_line(state));
    } else {
      say("{}\n{}", summary_line(state), reasons(state, environment.colour));
    }
    flush_output();
    if (!arguments.watch || !under_way(state)) return code_of(state);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + pause / 2, std::chrono::seconds{180});
  }
}

void add_status(const CommandLine& line) {
  const auto arguments = std::make_shared<StatusArguments>();
  CLI::App* status = add_verb(line.app, "status", "how far a submitted sweep is: counts, and what went wrong by reason",
                              "strata status results/first --all");
  status->add_option("results", arguments->results, "results/<experiment>")->required()->type_name("FOLDER");
  status->add_flag("--all", arguments->all, "every point instead, and the counts");
  status->add_flag("--watch", arguments->watch, "again and again until nothing is under way");
  status->callback([line, arguments] { line.exit_code = show_status(*arguments, line.environment); });
}

}  // namespace

Verb status_verb() { return {.place = 1000, .add = add_status}; }

}  // namespace strata::cli
