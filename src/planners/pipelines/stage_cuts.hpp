#pragma once

/// @file
/// A chain of pieces cut into the stages of a pipeline, equal or not, with which a step takes least.
///
/// With t_s what a micro-batch takes in stage s, forward and backward, m_s the messages that come to it and go back,
/// and M micro-batches:
///     step = sum_s (t_s + m_s) + (M - 1) max_s t_s,
/// the way of the first micro-batch through all stages, and behind it the others at the pace of the slowest one.
/// Source: Zheng et al., Alpa, OSDI 2022, sec. 5.1, for stages on equally many devices each; its messages cost nothing.

#include <span>
#include <vector>

namespace strata {

struct StageChain {
  std::vector<double> seconds{};                ///< by piece: of a micro-batch, forward and backward
  std::vector<std::vector<double>> messages{};  ///< by stage, by piece that it begins with; of the first stage unused
  int micro_batches = 1;
  int num_pieces() const { return static_cast<int>(seconds.size()); }
  int num_stages() const { return static_cast<int>(messages.size()); }
};

/// Of stages that begin with @p begins, ascending, 0 first: as above.
double step_seconds(const StageChain& chain, std::span<const int> begins);

/// The pieces that the stages begin with, 0 first: of all cuts the one with the fewest seconds. By dynamic programming
/// from the last stage on; of the cuts of what follows a piece those are kept that have less messages or a faster
/// slowest stage than every other. Time: stages × pieces² × those kept.
/// @param chain with at least as many pieces as stages, and one stage or more.
std::vector<int> fastest_cut(const StageChain& chain);

}  // namespace strata
