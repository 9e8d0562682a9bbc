/// @file
/// `strata program`: the instructions of one rank, what each asks of a device, or those of all ranks as other
/// simulators read them.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "cost/roofline.hpp"
#include "predict/device_options.hpp"
#include "predict/exported_programs.hpp"
#include "predict/selected_point.hpp"

namespace strata::cli {
namespace {

struct ProgramArguments {
  predict::ExperimentArguments experiment;
  int rank = 0;
  std::string format = "text";
  std::string traces_folder;
  bool costs = false;
};

int show_program(const ProgramArguments& arguments) {
  const std::string& format = arguments.format;
  if ((format == "chakra") == arguments.traces_folder.empty()) {
    throw UserError(fmt::format("program --format {}: --output is for chakra, which needs it", format));
  }
  if (arguments.costs && format != "text") throw UserError("program --costs: a text, leave out --format " + format);
  const predict::PreparedPoint point = predict::prepare_selected(arguments.experiment);
  if (format == "chakra") {
    predict::write_chakra(point, arguments.experiment.file, arguments.traces_folder);
  } else if (format == "goal") {
    say("{}", predict::goal_schedule(point, arguments.experiment.file));
  } else {
    check_rank(arguments.rank, point.plan);
    const Program program = predict::lower_for_run(point, arguments.rank);
    say("{}", arguments.costs
                  ? roofline_text(program, point.cluster) + predict::attention_note(point.experiment, program)
                  : to_text(program));
  }
  return exit_ok;
}

void add_program(const CommandLine& line) {
  const auto arguments = std::make_shared<ProgramArguments>();
  CLI::App* program = add_verb(line.app, "program", "the instructions of one rank, or of all for other simulators",
                               "strata program experiments/first.toml --rank 1");
  add_experiment_options(*program, arguments->experiment, true);
  program->add_option("--rank", arguments->rank, "world rank")->type_name("NUMBER");
  program
      ->add_option(
          "--format", arguments->format,
          "text: of --rank; goal: schedule of all ranks on standard output, for LogGOPSim's txt2bin; chakra: a "
          "folder of traces, NAME.RANK.et and NAME.comm_groups.json, for ASTRA-sim and other readers of Chakra")
      ->check(CLI::IsMember({"text", "chakra", "goal"}))
      ->type_name("FORMAT");
  program->add_option("--output", arguments->traces_folder, "chakra: the folder, new or empty")->type_name("FOLDER");
  program->add_flag("--costs", arguments->costs,
                    "of each instruction of --rank the bytes, the FLOPs and the least time that they leave on a device "
                    "of the experiment's cluster, which describes its rates (--set cluster=h200-ib), and their sums by "
                    "kernel");
  program->callback([line, arguments] { line.exit_code = show_program(*arguments); });
}

}  // namespace

Verb program_verb() { return {.place = 600, .add = add_program}; }

}  // namespace strata::cli
