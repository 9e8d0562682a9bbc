#pragma once

/// @file
/// All ranks' Programs of a point as other simulators read them, with the kernels' times that [simulate] asks for.

#include <string>

#include "predict/prepared_point.hpp"

namespace strata::predict {

/// A GOAL schedule. @param experiment_file a profile is found relative to it.
std::string goal_schedule(const PreparedPoint& point, const std::string& experiment_file);

/// Chakra execution traces: `<experiment>.<rank>.et` of each rank and `<experiment>.comm_groups.json` in @p folder,
/// which is made. @throws UserError if something is in it already.
void write_chakra(const PreparedPoint& point, const std::string& experiment_file, const std::string& folder);

}  // namespace strata::predict
