#pragma once

/// @file
/// What a result says about the point that was asked for, the same for a run and a simulation.

#include <string>

#include "base/environment.hpp"
#include "predict/prepared_point.hpp"
#include "results/rows.hpp"

namespace strata::predict {

/// Software and experiment: what is known before there is a plan.
results::AttemptFacts facts_of_experiment(const Environment& environment, const Experiment& experiment,
                                          const std::string& point_id);

/// Software, experiment, plan, cluster, model and the constants of derived metrics. Who took part, over which transport
/// and at which peak is the caller's to add.
results::AttemptFacts facts_of_point(const Environment& environment, const PreparedPoint& point,
                                     const std::string& point_id);

}  // namespace strata::predict
