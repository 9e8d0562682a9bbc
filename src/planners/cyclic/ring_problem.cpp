#include "planners/cyclic/ring_problem.hpp"

namespace strata {

RingStages::RingStages(const RingProblem& problem)
    : num_pieces_(static_cast<int>(problem.pieces.size())),
      seconds_((problem.pieces.size() + 1) * (problem.pieces.size() + 1)) {
  const auto message = [&](std::int64_t bytes) { return bytes > 0 ? problem.message_seconds(bytes) : 0.0; };
  for (std::size_t begin = 0; begin < problem.pieces.size(); ++begin) {
    StageSeconds stage;
    std::int64_t gradient_bytes = 0, parameter_bytes = 0;
    for (std::size_t end = begin + 1; end <= problem.pieces.size(); ++end) {
      const RingPiece& piece = problem.pieces[end - 1];
      stage.forward += piece.forward;
      stage.backward += piece.backward;
      stage.addition += piece.addition;
      stage.update += piece.update;
      gradient_bytes += piece.gradient_bytes;
      parameter_bytes += piece.parameter_bytes;
      stage.sum = message(gradient_bytes);
      stage.parameters = message(parameter_bytes);
      seconds_[begin * (problem.pieces.size() + 1) + end] = stage;
    }
  }
}

std::vector<StageSeconds> RingStages::seconds(const RingCut& cut) const {
  std::vector<StageSeconds> stages;
  for (std::size_t j = 0; j < cut.size(); ++j) {
    stages.push_back(seconds(cut[j], j + 1 < cut.size() ? cut[j + 1] : num_pieces_));
  }
  return stages;
}

}  // namespace strata
