/// @file
/// `strata list`: a name first on each line, so that other programs can read it too.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/look_up.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "config/cluster_files.hpp"
#include "cost/flops_convention.hpp"
#include "harness/site.hpp"
#include "ir/machine/cluster.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "predict/cluster_folders.hpp"
#include "predict/shipped_folder.hpp"

namespace strata::cli {
namespace {

/// A convention for transformers of equal layers says nothing about other models; their line says so.
std::string flops_text(const ModelGraph& graph, const std::string& convention) {
  const FlopsConvention parsed = parse_flops_convention(convention);
  try {
    return fmt::format("{:>10.1f} GFLOP/{}", training_flops_per_position(graph, parsed) * 1e-9,
                       graph.positions_per_sample > 1 ? "token" : "sample");
  } catch (const Unsupported&) {
    return fmt::format("{:>10} under {}", "undefined", convention);
  }
}

int list_strategies() {
  for (const Planner* planner : all_planners()) {
    say("{:<12} {}  [{}]\n", planner->name(), planner->summary(), planner->source());
  }
  return exit_ok;
}

int list_models(const std::string& flops_convention, std::int64_t sequence_length) {
  for (const Preset& preset : presets()) {
    ModelOptions options{.name = preset.name};
    const bool is_sequence_model = preset.family == "gpt" || preset.family == "llama";
    if (sequence_length > 0 && is_sequence_model) options.sequence_length = sequence_length;
    const ModelGraph graph = build_model(options);
    const std::string flops = flops_convention.empty() ? "" : flops_text(graph, flops_convention);
    say("{:<18} {:>8.1f} M parameters  {}  {}\n", preset.name, static_cast<double>(graph.num_parameters()) * 1e-6,
        flops, preset.description);
  }
  return exit_ok;
}

/// Beside the answer, which other programs read.
void tell_what_is_not_used(const LookUp& look_up) {
  if (!look_up.left_out.empty()) say_error("strata: {}\n", not_used(look_up));
}

int list_clusters() {
  say("{:<18} the machine strata runs on\n", "this");
  const LookUp look_up = predict::cluster_folders(std::filesystem::current_path());
  for (const auto& [name, file] : look_up.files) {
    const Cluster cluster = read_cluster(file);
    say("{:<18} {} nodes x {} {}  {}\n", name, cluster.nodes, cluster.devices_per_node, cluster.device,
        cluster.description);
  }
  tell_what_is_not_used(look_up);
  return exit_ok;
}

int list_sites() {
  const LookUp look_up = harness::site_folders(std::filesystem::current_path(), predict::shipped_folder());
  for (const auto& [name, file] : look_up.files) {
    const harness::Site site = harness::read_site(file);
    say("{:<18} {}  {}\n", site.name, site.has_slurm() ? "Slurm" : "no scheduler", site.launcher);
  }
  tell_what_is_not_used(look_up);
  return exit_ok;
}

void add_list(const CommandLine& line) {
  CLI::App* list =
      add_verb(line.app, "list", "names of strategies, models, clusters and sites", "strata list strategies");
  list->require_subcommand(1);
  add_verb(*list, "strategies", "modes that [strategy] name may be", "strata list strategies")->callback([line] {
    line.exit_code = list_strategies();
  });
  struct Arguments {
    std::string convention;
    std::int64_t sequence_length = 0;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* models = add_verb(*list, "models", "presets that [model] name may be",
                              "strata list models --flops megatron --sequence-length 4096");
  models
      ->add_option("--flops", arguments->convention,
                   "add GFLOP a token under this convention: megatron, sc21, internevo, palm, torchtitan, operators")
      ->type_name("CONVENTION");
  models->add_option("--sequence-length", arguments->sequence_length, "at this sequence length instead of the preset's")
      ->type_name("TOKENS");
  models->callback(
      [line, arguments] { line.exit_code = list_models(arguments->convention, arguments->sequence_length); });
  add_verb(*list, "clusters", "descriptions in experiments/clusters", "strata list clusters")->callback([line] {
    line.exit_code = list_clusters();
  });
  add_verb(*list, "sites", "what job scripts must know about a cluster: jobscripts/sites", "strata list sites")
      ->callback([line] { line.exit_code = list_sites(); });
}

}  // namespace

Verb list_verb() { return {.place = 100, .add = add_list}; }

}  // namespace strata::cli
