#pragma once

/// @file
/// How verbs are added, and options that several of them take. The names of options' types are what completion goes by,
/// see completion.hpp.

#include <string>

#include "harness/carry_out.hpp"
#include "predict/selected_point.hpp"

namespace CLI {
class App;
}

namespace strata::cli {

/// @param example a command that works in the source folder, or where its results are.
CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& help, const std::string& example);

void add_experiment_options(CLI::App& verb, predict::ExperimentArguments& arguments, bool takes_plan);
void add_results_option(CLI::App& verb, std::string& folder);
void add_submit_options(CLI::App& verb, harness::SubmitOptions& options);

/// @throws UserError unless --rank is one of the plan's.
void check_rank(int rank, const Plan& plan);

}  // namespace strata::cli
