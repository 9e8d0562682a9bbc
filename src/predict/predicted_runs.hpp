#pragma once

/// @file
/// Every run of a table of measurements, predicted with the closed form.

#include <string>

#include "config/measured_runs.hpp"
#include "ir/machine/cluster.hpp"

namespace strata::predict {

/// CSV with a header: each run, what was measured and what is predicted of it, which the Python package reads.
/// @param cluster with [transformer_costs]. @param file for messages. @param sensitivities with
/// d ln(seconds) / d ln(parameter) of every fitted parameter. @throws UserError where a run contradicts itself.
std::string predicted_runs(const MeasuredRuns& runs, const Cluster& cluster, const std::string& file,
                           bool sensitivities);

}  // namespace strata::predict
