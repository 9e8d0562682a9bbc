/// @file
/// `strata validate`: predictions of a table of measured runs beside the measurements. The Python package makes them;
/// here the cluster is found by its name.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/analysis_package.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "config/cluster_files.hpp"
#include "predict/cluster_folders.hpp"

namespace strata::cli {
namespace {

struct ValidateArguments {
  std::string file;            ///< CSV
  std::string cluster;         ///< a name or a path
  bool rows = false;           ///< print the predictions as CSV instead of the table of errors
  bool sensitivities = false;  ///< with d ln(seconds) / d ln(parameter) of every fitted parameter
};

int validate(const ValidateArguments& arguments, const Environment& environment) {
  const std::filesystem::path cluster =
      find_cluster_file(arguments.cluster, predict::cluster_folders(std::filesystem::current_path()), "--cluster");
  read_cluster(cluster);  // the package checks what it asks for alone
  std::vector<std::string> words = {"validate", "--cluster=" + cluster.string()};
  if (arguments.rows) words.emplace_back("--rows");
  if (arguments.sensitivities) words.emplace_back("--sensitivities");
  words.insert(words.end(), {"--", arguments.file});
  return start_analysis(words, environment);
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
