#include "run/running_statistics.hpp"

#include <algorithm>
#include <span>

#include "base/error.hpp"
#include "ir/program/training_state.hpp"

namespace strata::run {

RunningStatisticsOfModel running_statistics(const comm::World& world, const ModelGraph& graph, const Program& program,
                                            const Executor& executor) {
  struct Norm {
    std::ptrdiff_t first;  ///< of its means in the sums; its variances follow
    std::ptrdiff_t channels;
  };
  std::map<std::string, Norm> norms;
  std::vector<double> sums;
  for (const Operator& op : graph.operators) {
    if (op.kind != OperatorKind::batch_norm) continue;
    const Parameter& weight = graph.parameters[static_cast<std::size_t>(op.parameters.front())];
    norms[weight.name] = {std::ssize(sums), weight.num_elements()};
    sums.resize(sums.size() + 2 * static_cast<std::size_t>(weight.num_elements()), 0.0);
  }
  if (sums.empty()) return {};
  for (const KeptStatistics& kept : kept_statistics(program)) {
    auto at = static_cast<std::size_t>(norms.at(kept.weight).first);
    for (const int buffer : {kept.mean, kept.variance}) {
      for (const float value : executor.read(buffer)) sums[at++] += static_cast<double>(value);
    }
  }
  world.all_reduce_sum(sums);
  RunningStatisticsOfModel statistics;
  for (const auto& [weight, norm] : norms) {
    const auto mean = sums.begin() + norm.first;
    const auto variance = mean + norm.channels;
    statistics[weight] = {{mean, variance}, {variance, variance + norm.channels}};
  }
  return statistics;
}

void put_running_statistics(const Program& program, Executor& executor,
                            const std::function<NormRunningStatistics(const std::string& weight)>& read) {
  for (const KeptStatistics& kept : kept_statistics(program)) {
    NormRunningStatistics part = read(kept.weight);
    if (!kept.has_first_samples) {
      std::ranges::fill(part.mean, 0.0F);
      std::ranges::fill(part.variance, 0.0F);
    }
    executor.write(kept.mean, 0, part.mean);
    executor.write(kept.variance, 0, part.variance);
  }
}

}  // namespace strata::run
