#pragma once

/// @file
/// Where launches keep what they measured of the machine they stand on: one file in <results>/<experiment>/machine for
/// each shape of the allocation, dtype, device, [communication] and build. See run::machine_costs().

#include <optional>
#include <string>

#include "config/experiment.hpp"
#include "ir/machine/cluster.hpp"

namespace strata::predict {

/// Path and name up to what only a launch can tell. @param folder the experiment's results.
std::string machine_file_prefix(const Experiment& experiment, const std::string& folder);

/// The newest of the files whose paths begin with @p prefix: what is known of the nodes where these are not at hand.
/// @throws UserError where it cannot be read.
std::optional<Cluster> earlier_machine(const std::string& prefix);

}  // namespace strata::predict
