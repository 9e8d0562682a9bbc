/// @file
/// The `when` of an exclude, evaluated at one point.

#include "config/experiment.hpp"
#include "config/expression.hpp"
#include "config/options.hpp"
#include "fuzz/fuzz_target.hpp"

namespace strata::fuzz::expression_text {

STRATA_FUZZ_TARGET(expression) {
  static const Experiment experiment = [] {
    Experiment e;
    e.name = "sweep";
    e.model.name = "gpt-nano";
    e.model.widths = {1, 2, 3};
    e.strategy = {"ddp", {{"bucket", std::int64_t{4}}}};
    return e;
  }();
  const std::string text = text_of(bytes);
  const auto expression = unless_refused("column ", [&] { return Expression(text); });
  if (!expression) return;
  for (const std::string& key : expression->keys()) require(text.find(key) != std::string::npos, "an invented key");
  const auto value = [&](std::string_view key) { return value_of(experiment, key); };
  const auto truth = unless_refused("column ", [&] { return expression->evaluate(value); });
  if (!truth) return;
  // Of two levels more than a text may have there is none.
  const auto opposite = unless_refused("column ", [&] { return Expression("!(" + text + ")"); });
  if (opposite) require(opposite->evaluate(value) != *truth, "not the opposite of its opposite");
}

}  // namespace strata::fuzz::expression_text
