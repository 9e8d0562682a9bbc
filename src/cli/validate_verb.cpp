/// @file
/// `strata validate`: predictions of a table of measured runs, which the Python package sets beside the measurements.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/read_file.hpp"
#include "cli/analysis_package.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "config/cluster_files.hpp"
#include "config/measured_runs.hpp"
#include "predict/cluster_folders.hpp"
#include "predict/predicted_runs.hpp"

namespace strata::cli {
namespace {

struct ValidateArguments {
  std::string file;            ///< CSV, see config/measured_runs.hpp
  std::string cluster;         ///< a name or a path
  bool rows = false;           ///< print the predictions as CSV instead of the table of errors
  bool sensitivities = false;  ///< with d ln(seconds) / d ln(parameter) of every fitted parameter
};

int validate(const ValidateArguments& arguments, const Environment& environment) {
  const Cluster cluster =
      find_cluster(arguments.cluster, predict::cluster_folders(std::filesystem::current_path()), "--cluster");
  if (!cluster.transformer_costs) {
    throw UserError(
        fmt::format("--cluster {}: no section [transformer_costs] to predict iterations with", arguments.cluster));
  }
  const MeasuredRuns runs = parse_measured_runs(read_file(arguments.file), arguments.file);
  const std::string text = predict::predicted_runs(runs, cluster, arguments.file, arguments.sensitivities);
  if (arguments.rows || arguments.sensitivities) {
    fmt::print("{}", text);
    return exit_ok;
  }
  return start_analysis({"validate"}, environment, text);
}

void add_validate(const CommandLine& line) {
  const auto arguments = std::make_shared<ValidateArguments>();
  CLI::App* verb = add_verb(line.app, "validate",
                            "predict the runs of a table of measurements with the closed form, and print the errors",
                            "strata validate experiments/validation/vtrain_a100_multi_node.csv --cluster a100-vtrain");
  verb->add_option("table", arguments->file, "measured runs")->required()->type_name("FILE.csv");
  verb->add_option("--cluster", arguments->cluster, "name or file of a cluster with [transformer_costs]")
      ->required()
      ->type_name("CLUSTER");
  verb->add_flag("--rows", arguments->rows, "every row's prediction as CSV instead of the errors");
  verb->add_flag("--sensitivities", arguments->sensitivities,
                 "as --rows, with d ln(time) / d ln(parameter) of every fitted parameter");
  verb->callback([line, arguments] { line.exit_code = validate(*arguments, line.environment); });
}

}  // namespace

Verb validate_verb() { return {.place = 1400, .add = add_validate}; }

}  // namespace strata::cli
