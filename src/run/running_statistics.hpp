#pragma once

/// @file
/// What all ranks together have of the running statistics of batch norms, and back: a rank has a part of a sum.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/world.hpp"
#include "exec/executor.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/program/program.hpp"

namespace strata::run {

inline constexpr const char* running_mean_state = "running_mean";
inline constexpr const char* running_variance_state = "running_variance";

/// Of a batch norm, an element a channel each.
struct NormRunningStatistics {
  std::vector<float> mean;
  std::vector<float> variance;  ///< unbiased
  bool operator==(const NormRunningStatistics&) const = default;
};
/// By the norm's weight.
using RunningStatisticsOfModel = std::map<std::string, NormRunningStatistics>;

/// Collective, with no step under way. Equal on all ranks; empty for a model without batch norms.
RunningStatisticsOfModel running_statistics(const comm::World& world, const ModelGraph& graph, const Program& program,
                                            const Executor& executor);

/// What this rank goes on from: the values, or nothing where another rank has them. Not collective.
/// @param read called with a norm's weight.
void put_running_statistics(const Program& program, Executor& executor,
                            const std::function<NormRunningStatistics(const std::string& weight)>& read);

}  // namespace strata::run
