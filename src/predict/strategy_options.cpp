#include "predict/strategy_options.hpp"

#include <fmt/core.h>

#include "base/error.hpp"
#include "config/accepted.hpp"

namespace strata::predict {
namespace {

std::string text_of(const OptionValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  return fmt::format("\"{}\"", std::get<std::string>(value));
}

std::string_view type_of(const OptionValue& value) {
  constexpr std::string_view names[] = {"boolean", "integer", "number", "string"};
  return names[value.index()];
}

/// @p given in the row's type: an integer may stand for a number.
OptionValue checked(const Experiment& experiment, const OptionRow& row, const OptionValue& given) {
  const std::string key = fmt::format("strategy.{}", row.name);
  OptionValue value = given;
  if (std::holds_alternative<double>(row.default_value) && std::holds_alternative<std::int64_t>(given)) {
    value = static_cast<double>(std::get<std::int64_t>(given));
  }
  if (value.index() != row.default_value.index()) {
    throw UserError(fmt::format("{}: {} = {} is of the wrong type; accepted: {}{}{}", experiment.where(key), key,
                                text_of(given), type_of(row.default_value), row.accepted.empty() ? "" : ", ",
                                row.accepted));
  }
  if (const std::string wrong = refusal(value, row.accepted); !wrong.empty()) {
    throw UserError(fmt::format("{}: {}: {}", experiment.where(key), key, wrong));
  }
  return value;
}

}  // namespace

std::map<std::string, OptionValue> complete_strategy_options(const Experiment& experiment) {
  return complete_strategy_options(experiment, find_planner(experiment.strategy.name));
}

std::map<std::string, OptionValue> complete_strategy_options(const Experiment& experiment, const Planner& planner) {
  std::map<std::string, OptionValue> result;
  std::string accepted;
  for (const OptionRow& row : planner.options()) {
    accepted += fmt::format("{}{}", accepted.empty() ? "" : ", ", row.name);
    const auto given = experiment.strategy.options.find(std::string(row.name));
    result[std::string(row.name)] =
        given == experiment.strategy.options.end() ? row.default_value : checked(experiment, row, given->second);
  }
  for (const auto& [name, value] : experiment.strategy.options) {
    if (!result.contains(name)) {
      throw UserError(fmt::format("{}: unknown key strategy.{} of mode {}; accepted: {}",
                                  experiment.where("strategy." + name), name, planner.name(),
                                  accepted.empty() ? "name alone" : "name, " + accepted));
    }
  }
  return result;
}

void normalise_strategy(Experiment& experiment) {
  const auto complete = complete_strategy_options(experiment);
  for (const OptionRow& row : find_planner(experiment.strategy.name).options()) {
    const std::string name(row.name);
    if (complete.at(name) == row.default_value) {
      experiment.strategy.options.erase(name);
    } else {
      experiment.strategy.options[name] = complete.at(name);
    }
  }
}

std::string strategy_reference() {
  std::string text;
  for (const Planner* planner : all_planners()) {
    text +=
        fmt::format("\n### strategy.name = \"{}\"\n\n{}. {}\n", planner->name(), planner->summary(), planner->source());
    if (!planner->options().empty()) text += "\n| option | default | accepted | meaning |\n| --- | --- | --- | --- |\n";
    for (const OptionRow& row : planner->options()) {
      text += fmt::format("| `{}` | {} | {} | {} |\n", row.name, text_of(row.default_value),
                          row.accepted.empty() ? type_of(row.default_value) : row.accepted, row.help);
    }
  }
  return text;
}

}  // namespace strata::predict
