#include "ir/program/longest_path.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"

namespace strata {

double longest_path_seconds(const Program& program, std::span<const double> seconds) {
  STRATA_INVARIANT(seconds.size() == program.body.size(),
                   fmt::format("{} durations for {} instructions", seconds.size(), program.body.size()));
  std::vector<double> stream_end(program.streams.size(), 0.0);
  std::vector<double> end(program.body.size(), 0.0);
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    double& stream = stream_end[static_cast<std::size_t>(in.stream)];
    double begin = stream;
    for (const Wait& wait : in.waits) {
      if (wait.lag == 0) begin = std::max(begin, end[static_cast<std::size_t>(wait.instruction)]);
    }
    end[i] = begin + seconds[i];
    stream = end[i];
  }
  return end.empty() ? 0.0 : *std::ranges::max_element(end);
}

}  // namespace strata
