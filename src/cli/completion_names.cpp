/// @file
/// The names that options take, where the binary knows them.

#include <fmt/core.h>

#include <algorithm>
#include <variant>

#include "base/toml_value.hpp"
#include "cli/completion.hpp"
#include "config/options.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "results/status.hpp"

namespace strata::cli {
namespace {

/// Words of "a | b | c"; none of a condition.
std::vector<std::string> accepted_words(std::string_view accepted) {
  std::vector<std::string> words = split_words(accepted);
  for (const std::string& word : words) {
    if (word.find(' ') != std::string::npos) return {};
  }
  return words;
}

}  // namespace

CompletionNames completion_names() {
  CompletionNames names;
  names.listed = {{"CLUSTER", "clusters"}, {"SITE", "sites"}};
  std::vector<std::string>& strategies = names.words["STRATEGY"];
  std::vector<std::string>& models = names.words["MODEL"];
  for (const Planner* planner : all_planners()) strategies.emplace_back(planner->name());
  for (const Preset& preset : presets()) models.push_back(preset.name);
  // Of `resume --class`: what `status` calls a point that did not end well.
  names.words["CLASS"] = {"missing"};
  for (int status = 0; status < results::num_statuses; ++status) {
    const auto value = static_cast<results::Status>(status);
    if (value == results::Status::running || value == results::Status::ok) continue;
    names.words["CLASS"].emplace_back(to_string(value));
  }
  for (const Option& option : all_options()) {
    CompletedSetting setting{.key = std::string(option.key), .words = accepted_words(option.accepted)};
    if (type_name(option).starts_with("true")) setting.words = {"true", "false"};
    if (option.key == "measure.flops_convention") {
      for (const std::string& word : setting.words) {
        if (word != "auto") names.words["CONVENTION"].push_back(word);
      }
    }
    if (option.key == "strategy.name") setting.value = "STRATEGY";
    if (option.key == "model.name") setting.value = "MODEL";
    if (option.key == "cluster") setting.value = "CLUSTER";
    names.settings.push_back(std::move(setting));
  }
  for (const Planner* planner : all_planners()) {
    for (const OptionRow& row : planner->options()) {
      CompletedSetting setting{.key = fmt::format("strategy.{}", row.name), .words = accepted_words(row.accepted)};
      if (std::holds_alternative<bool>(row.default_value)) setting.words = {"true", "false"};
      const auto same = [&](const CompletedSetting& known) { return known.key == setting.key; };
      if (std::none_of(names.settings.begin(), names.settings.end(), same)) names.settings.push_back(setting);
    }
  }
  return names;
}

}  // namespace strata::cli
