#pragma once

/// @file
/// Plan → Program, for one rank. A layer at a micro-batch in a phase expands to kernels; its reductions come from its
/// state factors, its order from the schedule, its start points from the overlap policy, its alloc and free from
/// liveness. One file each.

#include <cstdint>
#include <functional>

#include "ir/model_graph.hpp"
#include "ir/plan.hpp"
#include "ir/program.hpp"

namespace strata {

/// Scratch bytes that the library behind @p instruction needs (0: none). Data about the executor, handed in: the CPU's
/// come from its kernels, a simulated device's from its cost profile.
using WorkspaceBytes = std::function<std::int64_t(const Program& program, const Instruction& instruction)>;

/// The Program of rank @p rank. Equal inputs give equal Programs. verify(program) holds.
/// @throws Unsupported naming the part of the plan that cannot be lowered, with its numbers.
Program lower(const Plan& plan, const ModelGraph& graph, int rank, const WorkspaceBytes& workspace_bytes);

}  // namespace strata
