#pragma once

/// @file
/// In which order a stage takes the forward and backward passes of its micro-batches.
///
/// Sources: GPipe, Huang et al., NeurIPS 2019, fig. 2 (fill, then drain); 1F1B, Narayanan et al., PipeDream, SOSP 2019,
/// in the form that flushes every step (Narayanan et al., Megatron-LM, SC 2021, sec. 2.2.1).

#include <vector>

#include "ir/plan.hpp"

namespace strata {

/// One micro-batch's way through a stage, in one direction.
struct StagePass {
  bool backward = false;
  int micro_batch = 0;
  bool operator==(const StagePass&) const = default;
};

/// All 2 · @p num_micro_batches passes of stage @p stage of @p num_stages. Forwards are in the order of the
/// micro-batches whatever the schedule.
/// gpipe: every forward, then every backward, the last micro-batch first: what was stored last is needed first.
/// 1f1b: min(M, S - s - 1) forwards, then a forward and a backward in turn, then the backwards that are left; backwards
/// in the order of micro-batches. At most min(M, S - s) micro-batches are between their two passes.
/// simultaneous: each micro-batch's forward and backward, as 1f1b on one stage.
/// @throws InternalError for another kind.
std::vector<StagePass> pass_order(ScheduleKind kind, int num_stages, int stage, int num_micro_batches);

}  // namespace strata
