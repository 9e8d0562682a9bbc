#pragma once

/// @file
/// Which part of a step a rank computes: what generators of orders are asked for.

namespace strata {

/// What of a step a rank computes, as ranges of stages and micro-batches: one stage of a pipeline and all
/// micro-batches, all stages on one device, or all stages and the one micro-batch of a cyclic replica. Of a stage that
/// has replicas, one of these: of the micro-batches of all training steps it takes every num_replicas-th, from number
/// `replica` on. Of interleaved stages every stages_apart-th, from first_stage on.
struct StepPart {
  int first_stage = 0, end_stage = 0;
  int first_micro_batch = 0, end_micro_batch = 0;
  int replica = 0, num_replicas = 1;
  int stages_apart = 1;
  bool operator==(const StepPart&) const = default;
};

}  // namespace strata
