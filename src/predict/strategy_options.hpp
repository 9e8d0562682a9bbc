#pragma once

/// @file
/// [strategy]: what the file gives against what the mode declares.

#include <map>
#include <string>

#include "base/option_value.hpp"
#include "config/experiment.hpp"
#include "planners/planner.hpp"

namespace strata::predict {

/// Every option of the experiment's mode, defaults filled in.
/// @throws UserError with key, place and what is accepted.
std::map<std::string, OptionValue> complete_strategy_options(const Experiment& experiment);
/// As above for a given @p planner.
std::map<std::string, OptionValue> complete_strategy_options(const Experiment& experiment, const Planner& planner);

/// Checks the mode's options and drops those that equal their default, so that a point's id names only what differs.
void normalise_strategy(Experiment& experiment);

/// The options of every mode, markdown: the part of the reference that planners declare themselves.
std::string strategy_reference();

}  // namespace strata::predict
