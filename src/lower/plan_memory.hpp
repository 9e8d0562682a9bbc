#pragma once

/// @file
/// What memory a plan needs, as its Programs say: of its fullest ranks to the byte, or quickly of a model with few of
/// its blocks. There is no other account of a step's memory.

#include <cstdint>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "ir/program/program.hpp"
#include "lower/lower.hpp"

namespace strata {

struct PlanMemory {
  std::int64_t peak_bytes = 0;                   ///< of the fullest rank's arena
  std::vector<std::int64_t> stage_peak_bytes{};  ///< by place in the pipeline: of its fullest rank
  MemoryPeak peak{};                             ///< of the fullest rank: what its arena holds at its fullest moment
};

/// To the byte. @throws Unsupported where lowering refuses, as all of this file.
/// @param places of the pipeline, of which alone ranks are lowered: of others it says 0; empty: all.
PlanMemory plan_memory(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels,
                       std::span<const int> places = {});

/// Live bytes of a rank at its fullest moment from Programs of two and of three of each run of equal blocks: blocks
/// that are left out add what the third adds. A step's live bytes are at every moment a sum over blocks, and the most
/// of several sums grows no slower with more blocks than with few, so that with one run of blocks a Program's arena is
/// at least this; it is more by what first fit leaves empty and by what is kept because another stream may still read
/// it. Where tensors are dealt whole, ranks differ: the optimizer states are those of the rank that owns most, and the
/// rest is what it would be with even parts. Stages that differ keep their blocks, but of the micro-batches of 1f1b and
/// interleaved stages as many are lowered as are in flight, and a few: more make no moment fuller. Of those of gpipe,
/// which are all in flight, three and four are, and the others add what the fourth does, as blocks do. Those of other
/// schedules need what plan_memory() says.
/// @param places as of plan_memory().
/// @return by place in the pipeline.
std::vector<std::int64_t> least_memory_by_place(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels,
                                                std::span<const int> places = {});
/// The same where nothing says that arenas hold more than what is alive, other schedules' too: no other plan with as
/// many bytes alive needs less, however well first fit packs them.
std::vector<std::int64_t> live_memory_by_place(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels,
                                               std::span<const int> places = {});
/// Of the fullest place.
std::int64_t least_memory_bytes(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels);

}  // namespace strata
