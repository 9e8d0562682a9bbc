#pragma once

/// @file
/// Which blocks the stages of a pipeline have whose ranks share layers: as the option `cut_by` says, equally many, or
/// those that Alpa's dynamic program over the cuts finds (pipelines/stage_cuts.hpp).
///
/// A piece of its chain is a block, with what stands before the first and behind the last. What a micro-batch takes in
/// it are its kernels and the collectives of its layouts, forward, again and backward, one after another, as one place
/// alone does them (Evaluate::price()); to it come the messages, there and back, of the tensors that a cut before it
/// crosses. Sums of gradients and updates are once a step and in no piece.

#include <cstdint>
#include <string>
#include <vector>

#include "planners/planner.hpp"

namespace strata {

/// The option `stage_construction`.
OptionRow stage_construction_option();

/// The option `stages`, or, where it is 0, every number of stages of several ranks each that the mesh and the model
/// have, 1 among them, ascending. Of interleaved stages as many as the option `chunks` says are at a place.
/// @throws Unsupported for auto of interleaved stages whose number is searched.
std::vector<std::int64_t> asked_stage_counts(const PlanRequest& request);

struct StageConstruction {
  std::string how{};                  ///< "by dynamic programming"; empty: by cut_by, as nothing else was asked for
  std::vector<std::string> begins{};  ///< operators that the stages behind the first begin with; empty: by cut_by
};

/// Those between which the option `stage_construction` leaves the choice: for auto the dynamic program's first, the
/// others where they differ from it. @param plan in stages, with its layouts.
/// @throws Unsupported for auto of interleaved stages, or where lowering refuses the plan; CostsUnknown for auto where
/// nobody simulates.
std::vector<StageConstruction> stage_constructions(const PlanRequest& request, const Plan& plan);

}  // namespace strata
