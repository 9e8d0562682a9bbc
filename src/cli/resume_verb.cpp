/// @file
/// `strata resume`: what is missing of a sweep becomes arrays of jobs again.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/folder_path.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "harness/carry_out.hpp"
#include "harness/queue_view.hpp"
#include "harness/site.hpp"
#include "predict/shipped_folder.hpp"

namespace strata::cli {
namespace {

struct ResumeArguments {
  std::string results;                  ///< `<results>/<experiment>`
  std::vector<std::string> classes;     ///< words of the status table; empty: all that is missing or failed
  std::string site;                     ///< empty: that of the last submission
  std::int64_t time_limit_minutes = 0;  ///< 0: as before
  harness::SubmitOptions options;
};

int resume_experiment(const ResumeArguments& arguments, const Environment& environment) {
  namespace fs = std::filesystem;
  const harness::SweepState state = harness::state_with_queue(arguments.results, environment);
  harness::check_submitted(state.manifests, folder_path(arguments.results));
  const harness::Manifest& last = state.manifests.back();
  harness::SubmissionRequest request;
  request.experiment_name = last.experiment_name;
  request.experiment_file = last.experiment_file;
  const fs::path folder = folder_path(arguments.results);
  request.results_folder = folder.parent_path().string();
  if (folder.filename() != last.experiment_name) {
    throw UserError(fmt::format("{} holds the results of experiment {}, whose runs write to {}: give it back its name",
                                folder.string(), last.experiment_name,
                                (folder.parent_path() / last.experiment_name).string()));
  }
  request.strata_binary = fs::read_symlink("/proc/self/exe").string();
  request.site_name_or_path = arguments.site.empty() ? last.site : arguments.site;
  request.site = harness::find_site(request.site_name_or_path,
                                    harness::site_folders(fs::current_path(), predict::shipped_folder()));
  for (const harness::Manifest& manifest : state.manifests) {
    request.point_axes.insert(manifest.point_axes.begin(), manifest.point_axes.end());
    request.expects.insert(manifest.expects.begin(), manifest.expects.end());
  }
  say("{}\n", summary_line(state));
  std::vector<harness::JobArray> arrays =
      harness::arrays_to_resume(state, std::set<std::string>(arguments.classes.begin(), arguments.classes.end()));
  for (harness::JobArray& array : arrays) {
    if (arguments.time_limit_minutes > 0) array.geometry.time_limit_minutes = arguments.time_limit_minutes;
  }
  if (arrays.empty()) {
    say("nothing to resume\n");
    return exit_ok;
  }
  request.point_files = harness::read_point_files(state.manifests, arrays);
  return harness::carry_out(std::move(request), std::move(arrays), arguments.options, environment);
}

void add_resume(const CommandLine& line) {
  const auto arguments = std::make_shared<ResumeArguments>();
  CLI::App* resume = add_verb(line.app, "resume", "submit again exactly what is missing or failed",
                              "strata resume results/first --class timeout --time-limit 60 --dry-run");
  resume->add_option("results", arguments->results, "results/<experiment>")->required()->type_name("FOLDER");
  resume
      ->add_option("--class", arguments->classes,
                   "only this class, as `strata status` prints it: missing, oom, timeout, …; may be repeated")
      ->type_name("CLASS");
  resume->add_option("--time-limit", arguments->time_limit_minutes, "minutes of a job, instead of what it had")
      ->check(CLI::PositiveNumber)
      ->type_name("MINUTES");
  resume->add_option("--site", arguments->site, "another site than that of the last submission")->type_name("SITE");
  add_submit_options(*resume, arguments->options);
  resume->callback([line, arguments] { line.exit_code = resume_experiment(*arguments, line.environment); });
}

}  // namespace

Verb resume_verb() { return {.place = 1100, .add = add_resume}; }

}  // namespace strata::cli
