#pragma once

/// @file
/// In which order the ranks at one place of a pipeline take their passes, where a forward and a backward come in turn.
///
/// A stage a place: of M micro-batches the place s of S from 0 is min(M, S - s - 1) forwards ahead, then a forward and
/// a backward in turn, then the backwards that are left; backwards in the order of micro-batches. Source: Narayanan et
/// al., PipeDream, SOSP 2019, in the form that flushes every step (Narayanan et al., Megatron-LM, SC 2021, sec. 2.2.1).
///
/// Interleaved, v stages a place, of M micro-batches that are a multiple of S: S micro-batches are taken through the
/// place's first stage, then the same through its next one, and so on, S by S; backwards follow in the same way with
/// its last stage first. It is min(vM, 2(S - s - 1) + (v - 1)S) forwards ahead, then as above. Source: sec. 2.2.2 of
/// the latter.

#include <algorithm>
#include <vector>

#include "ir/plan/plan.hpp"

namespace strata {

struct PlaceInPipeline {
  int place = 0;  ///< from 0
  int places = 1;
  int stages = 1;  ///< of the place
  int micro_batches = 1;
  bool is_interleaved = false;

  int num_forwards() const { return stages * micro_batches; }
  /// Before the first backward, but for one that comes right before it where any is left.
  int forwards_ahead() const {
    const int behind = places - place - 1;
    return std::min(num_forwards(), is_interleaved ? 2 * behind + (stages - 1) * places : behind);
  }
  /// Passes at most that are between their forward and their backward.
  int most_in_flight() const { return std::min(num_forwards(), forwards_ahead() + 1); }
  /// Which of the place's stages, from its first, the forward that comes @p k-th, from 0, goes through.
  int turn_of_forward(int k) const { return is_interleaved ? k / places % stages : 0; }
};

/// @param plan 1f1b or interleaved.
inline PlaceInPipeline place_in_pipeline(const Plan& plan, int place) {
  const int places = axis_size(plan.mesh, "stage");
  return {.place = place,
          .places = places,
          .stages = plan.stages.count / places,
          .micro_batches = plan.schedule.micro_batches,
          .is_interleaved = plan.schedule.kind == ScheduleKind::interleaved};
}

struct PipelinePass {
  int turn = 0;  ///< which of the place's stages, from its first
  int micro_batch = 0;
  bool is_forward = true;
};

inline std::vector<PipelinePass> pipeline_passes(const PlaceInPipeline& p) {
  const auto pass = [&](int k, bool is_forward) {
    const int turn = p.turn_of_forward(k);
    return PipelinePass{.turn = is_forward ? turn : p.stages - 1 - turn,
                        .micro_batch = p.is_interleaved ? k / (p.stages * p.places) * p.places + k % p.places : k,
                        .is_forward = is_forward};
  };
  const int ahead = p.forwards_ahead();
  std::vector<PipelinePass> passes;
  for (int k = 0; k < ahead; ++k) passes.push_back(pass(k, true));
  for (int k = ahead; k < p.num_forwards(); ++k) {
    passes.push_back(pass(k, true));
    passes.push_back(pass(k - ahead, false));
  }
  for (int k = p.num_forwards() - ahead; k < p.num_forwards(); ++k) passes.push_back(pass(k, false));
  return passes;
}

}  // namespace strata
