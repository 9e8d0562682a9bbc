/// @file
/// The command line: sub-commands, their options, exit codes. Read this file first; each verb is one call.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "cli/command_tree.hpp"
#include "cli/verbs.hpp"
#include "predict/provenance.hpp"
#include "predict/simulate_experiment.hpp"
#include "profile/profile_experiment.hpp"
#include "run/run_experiment.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

// The names of types are what completion goes by, see completion.hpp.
void add_experiment_options(CLI::App& verb, predict::ExperimentArguments& arguments, bool takes_plan) {
  verb.add_option("experiment", arguments.file, "experiment file; `strata reference` has all of its options")
      ->required()
      ->type_name("FILE.toml");
  verb.add_option("--set", arguments.overrides, "override an option, e.g. train.steps=20; may be repeated")
      ->type_name("KEY=VALUE");
  verb.add_option("--point", arguments.point, "one point of the sweep, by its number in `strata expand`")
      ->type_name("NUMBER");
  if (takes_plan) {
    verb.add_option("--plan", arguments.plan_file, "a plan file to use instead of the planner's")->type_name("FILE");
  }
}

void add_results_option(CLI::App& verb, std::string& folder) {
  verb.add_option("--results", folder, "folder of the results: FOLDER/<experiment>/<point>")
      ->type_name("FOLDER")
      ->capture_default_str();
}

/// @param example a command that works in the source folder, or where its results are.
CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& help, const std::string& example) {
  CLI::App* verb = parent.add_subcommand(name, help);
  verb->footer("Example:  " + example);
  return verb;
}

int call_verb(int argc, char** argv) {
  const Environment environment = read_environment();
  CLI::App app{"strata: plan, run and record distributed-training strategies, head to head on the same kernels"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "strata " + predict::version_and_commit());
  app.failure_message(
      [](const CLI::App*, const CLI::Error& e) { return fmt::format("strata: {}; see --help\n", e.what()); });
  app.footer(
      "Example:      mpiexec -n 2 strata run experiments/first.toml\n"
      "Every verb:   strata VERB --help\n"
      "Exit codes:   0 good, 1 some point failed, 2 bad input, 3 out of memory or refused, 70 a bug of strata's");
  int code = exit_ok;

  CLI::App* list = add_verb(app, "list", "names of strategies, models, clusters and sites", "strata list strategies");
  list->require_subcommand(1);
  add_verb(*list, "strategies", "modes that [strategy] name may be", "strata list strategies")->callback([&] {
    code = list_strategies();
  });
  std::string convention;
  std::int64_t sequence_length = 0;
  CLI::App* models = add_verb(*list, "models", "presets that [model] name may be",
                              "strata list models --flops megatron --sequence-length 4096");
  models
      ->add_option("--flops", convention,
                   "add GFLOP a token under this convention: megatron, sc21, internevo, palm, torchtitan, operators")
      ->type_name("CONVENTION");
  models->add_option("--sequence-length", sequence_length, "at this sequence length instead of the preset's")
      ->type_name("TOKENS");
  models->callback([&] { code = list_models(convention, sequence_length); });
  add_verb(*list, "clusters", "descriptions in experiments/clusters", "strata list clusters")->callback([&] {
    code = list_clusters();
  });
  add_verb(*list, "sites", "what job scripts must know about a cluster: jobscripts/sites", "strata list sites")
      ->callback([&] { code = list_sites(); });

  add_verb(app, "reference", "every option of an experiment file, with default and meaning",
           "strata reference > experiment_files.md")
      ->callback([&] { code = print_reference(); });

  predict::ExperimentArguments arguments;
  bool json = false;
  CLI::App* expand = add_verb(app, "expand", "the points of a sweep, as a table or as JSON",
                              "strata expand experiments/quickstart.toml");
  add_experiment_options(*expand, arguments, false);
  expand->add_flag("--json", json, "JSON instead of a table");
  expand->callback([&] { code = expand_experiment(arguments, json); });

  CLI::App* plan = add_verb(
      app, "plan", "what the strategy decides for a point; edit it and pass it back with --plan",
      "strata plan experiments/first.toml > first.plan && strata program experiments/first.toml --plan first.plan");
  add_experiment_options(*plan, arguments, true);
  plan->callback([&] { code = print_plan(arguments); });

  OrderArguments order_arguments;
  CLI::App* order = add_verb(app, "order", "what the ranks of each stage compute in a step, in order",
                             "strata order experiments/first.toml --picture order.png");
  add_experiment_options(*order, order_arguments.experiment, true);
  order->add_option("--rank", order_arguments.rank, "of this world rank alone")->type_name("NUMBER");
  order
      ->add_option("--picture", order_arguments.picture_file,
                   "draw it instead, forward 1, backward 2 and recomputation 1 unit long: .png, .svg or .pdf")
      ->type_name("FILE");
  order->callback([&] { code = show_order(order_arguments, environment); });

  int rank = 0;
  CLI::App* program = add_verb(app, "program", "the instructions of one rank, or of all for other simulators",
                               "strata program experiments/first.toml --rank 1");
  add_experiment_options(*program, arguments, true);
  program->add_option("--rank", rank, "world rank")->type_name("NUMBER");
  std::string program_format = "text";
  program
      ->add_option(
          "--format", program_format,
          "text: of --rank; goal: schedule of all ranks on standard output, for LogGOPSim's txt2bin; chakra: a "
          "folder of traces, NAME.RANK.et and NAME.comm_groups.json, for ASTRA-sim and other readers of Chakra")
      ->check(CLI::IsMember({"text", "chakra", "goal"}))
      ->type_name("FORMAT");
  std::string traces_folder;
  program->add_option("--output", traces_folder, "chakra: the folder, new or empty")->type_name("FOLDER");
  program->callback([&] {
    if ((program_format == "chakra") == traces_folder.empty()) {
      throw strata::UserError(
          fmt::format("program --format {}: --output is for chakra, which needs it", program_format));
    }
    code = program_format == "chakra" ? write_chakra(arguments, traces_folder)
           : program_format == "goal" ? print_goal(arguments)
                                      : print_program(arguments, rank);
  });

  run::RunArguments run_arguments;
  CLI::App* run_verb =
      add_verb(app, "run", "train and measure, under mpiexec or srun; without --point all points for this many ranks",
               "mpiexec -n 2 strata run experiments/first.toml --set train.steps=20");
  add_experiment_options(*run_verb, run_arguments.experiment, true);
  add_results_option(*run_verb, run_arguments.results_folder);
  run_verb->add_flag("--quiet", run_arguments.quiet, "no line a step");
  run_verb->callback([&] { code = run::run_experiment(argc, argv, run_arguments, environment); });

  predict::SimulateArguments simulate_arguments;
  CLI::App* simulate = add_verb(
      app, "simulate", "what the points of an experiment would cost on its cluster; no MPI, results marked simulated",
      "strata simulate experiments/first.toml --set cluster=a100-2x8 --set simulate.cost=analytic");
  add_experiment_options(*simulate, simulate_arguments.experiment, true);
  add_results_option(*simulate, simulate_arguments.results_folder);
  simulate
      ->add_option("--trace", simulate_arguments.trace_file,
                   "write the first step of one rank of each kind, with its memory, as a Chrome trace (Perfetto)")
      ->type_name("FILE");
  bool fast = false;
  simulate->add_flag(
      "--fast", fast,
      "estimate the step instead of simulating it, without events: short for --set simulate.method=estimate");
  simulate->callback([&] {
    if (fast) simulate_arguments.experiment.overrides.emplace_back("simulate.method=estimate");
    code = predict::simulate_experiment(simulate_arguments, environment);
  });

  run_verb
      ->add_option("--paths-from", run_arguments.experiment.paths_from,
                   "paths in the experiment are relative to this file instead")
      ->type_name("FILE.toml");
  // What a batch script says of the launch; recorded, and without effect on the run.
  for (CLI::Option* option :
       {run_verb->add_option("--launch", run_arguments.launch, "name of the launch in its submission")
            ->type_name("NAME"),
        run_verb->add_option("--job", run_arguments.job, "id of the scheduler's job")->type_name("ID"),
        run_verb->add_option("--block", run_arguments.block, "head to head: number of the block")->type_name("NUMBER"),
        run_verb->add_option("--block-order", run_arguments.block_order, "place in the block")->type_name("NUMBER"),
        run_verb->add_option("--block-seed", run_arguments.block_seed, "of the orders of blocks")
            ->type_name("NUMBER")}) {
    option->group("Batch scripts");
  }

  const auto add_submit_options = [](CLI::App& verb, SubmitOptions& options) {
    verb.add_flag("--dry-run", options.dry_run, "print arrays, node-hours and every script; write and submit nothing");
    verb.add_flag("--emit", options.emit, "write the scripts; do not submit them");
    verb.add_flag("--test-only", options.test_only, "write the scripts and have Slurm check them; do not submit them");
  };
  SubmitArguments submit_arguments;
  CLI::App* submit = add_verb(
      app, "submit", "the points of an experiment as job arrays, one a geometry, with scripts that stand alone",
      "strata submit experiments/first.toml --dry-run");
  add_experiment_options(*submit, submit_arguments.experiment, false);
  add_results_option(*submit, submit_arguments.results_folder);
  submit
      ->add_option("--site", submit_arguments.site,
                   "a name that `strata list sites` prints or a path ending in .toml; local: here, without Slurm")
      ->type_name("SITE")
      ->capture_default_str();
  add_submit_options(*submit, submit_arguments.options);
  submit->callback([&] { code = submit_experiment(submit_arguments, environment); });

  StatusArguments status_arguments;
  CLI::App* status = add_verb(app, "status", "how far a submitted sweep is: what is not good, and a summary",
                              "strata status results/first --all");
  status->add_option("results", status_arguments.results, "results/<experiment>")->required()->type_name("FOLDER");
  status->add_flag("--all", status_arguments.all, "points that are good too");
  status->add_flag("--watch", status_arguments.watch, "again and again until nothing is under way");
  status->callback([&] { code = show_status(status_arguments, environment); });

  ResumeArguments resume_arguments;
  CLI::App* resume = add_verb(app, "resume", "submit again exactly what is missing or failed",
                              "strata resume results/first --class timeout --time-limit 60 --dry-run");
  resume->add_option("results", resume_arguments.results, "results/<experiment>")->required()->type_name("FOLDER");
  resume
      ->add_option("--class", resume_arguments.classes,
                   "only this class, as `strata status` prints it: missing, oom, timeout, …; may be repeated")
      ->type_name("CLASS");
  resume->add_option("--time-limit", resume_arguments.time_limit_minutes, "minutes of a job, instead of what it had")
      ->check(CLI::PositiveNumber)
      ->type_name("MINUTES");
  resume->add_option("--site", resume_arguments.site, "another site than that of the last submission")
      ->type_name("SITE");
  add_submit_options(*resume, resume_arguments.options);
  resume->callback([&] { code = resume_experiment(resume_arguments, environment); });

  LaunchesArguments launches_arguments;
  CLI::App* launches = app.add_subcommand("launches", "what a job that starts has to launch")->group("");
  launches->add_option("manifest", launches_arguments.manifest)->required();
  launches->add_option("--task", launches_arguments.task)->required();
  launches->add_option("--job", launches_arguments.job);
  launches->add_option("--nodes", launches_arguments.nodes);
  launches->add_flag("--job-ends", launches_arguments.job_ends);
  launches->callback([&] { code = print_launches(launches_arguments, environment); });

  profile::ProfileArguments profile_arguments;
  CLI::App* profile =
      add_verb(app, "profile",
               "measure kernels, collectives and their interference, under mpiexec or srun, for the points of an "
               "experiment",
               "mpiexec -n 2 strata profile experiments/first.toml --output this.toml");
  add_experiment_options(*profile, profile_arguments.experiment, false);
  profile->add_option("--output", profile_arguments.output_file, "profile to write; what is there already is kept")
      ->required()
      ->type_name("FILE.toml");
  profile->callback([&] { code = profile::profile_experiment(argc, argv, profile_arguments, environment); });

  ValidateArguments validate_arguments;
  CLI::App* validate_verb = add_verb(
      app, "validate", "predict the runs of a table of measurements with the closed form, and print the errors",
      "strata validate experiments/validation/vtrain_a100_multi_node.csv --cluster a100-vtrain");
  validate_verb->add_option("table", validate_arguments.file, "measured runs")->required()->type_name("FILE.csv");
  validate_verb
      ->add_option("--cluster", validate_arguments.cluster, "name or file of a cluster with [transformer_costs]")
      ->required()
      ->type_name("CLUSTER");
  validate_verb->add_flag("--rows", validate_arguments.rows, "every row's prediction as CSV instead of the errors");
  validate_verb->add_flag("--sensitivities", validate_arguments.sensitivities,
                          "as --rows, with d ln(time) / d ln(parameter) of every fitted parameter");
  validate_verb->callback([&] { code = validate(validate_arguments, environment); });

  for (const auto& [name, help] :
       {std::pair{"collect", "merge the attempts of a sweep into one file (HDF5, CSV, Parquet)"},
        {"figures", "draw scaling, MFU, time, memory and loss figures of a sweep"},
        {"table", "a short table of a sweep"},
        {"compare",
         "which strategy is faster: RESULTS --baseline ddp --candidate zero1, or two results; or --predicted"},
        {"report", "one self-contained HTML page of a sweep"}}) {
    CLI::App* verb = app.add_subcommand(name, help);
    verb->prefix_command();
    verb->set_help_flag();  // the package knows the verb's options
    verb->callback([&, verb, name = std::string(name)] {
      std::vector<std::string> words = {name};
      const std::vector<std::string> rest = verb->remaining();
      words.insert(words.end(), rest.begin(), rest.end());
      code = start_analysis(words, environment);
    });
  }

  std::string shell;
  CLI::App* completion = add_verb(app, "completion", "a script with which a shell completes verbs, options and names",
                                  "source <(strata completion bash)");
  completion->add_option("shell", shell, "whose")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}))
      ->type_name("SHELL");
  completion->callback([&] { code = print_completion(command_tree(app), shell); });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // Every rank reads the same words; the first speaks.
    std::ostringstream unheard;
    const bool speaks = environment.launcher_rank == 0;
    const int parsed = app.exit(e, speaks ? std::cout : unheard, speaks ? std::cerr : unheard);
    return parsed == 0 ? int{exit_ok} : int{exit_bad_input};
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return call_verb(argc, argv);
  } catch (const strata::UserError& e) {
    std::fprintf(stderr, "strata: %s\n", e.what());
    return exit_bad_input;
  } catch (const strata::Unsupported& e) {
    std::fprintf(stderr, "strata: refused: %s\n", e.what());
    return exit_refused;
  } catch (const strata::OutOfMemory& e) {
    std::fprintf(stderr, "strata: %s\n", e.what());
    return exit_refused;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "strata: bug: %s\n", e.what());
    return exit_internal;
  }
}
