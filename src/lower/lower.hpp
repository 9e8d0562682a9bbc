#pragma once

/// @file
/// Plan → StepOrder → Program, for one rank. The schedule's generator says what is computed in which order; an item of
/// it expands to kernels; reductions come from state factors, start points from the overlap policy, alloc and free from
/// liveness. One file each.

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "ir/program/fusions.hpp"
#include "ir/program/program.hpp"
#include "lower/order/schedules.hpp"

namespace strata {

/// Scratch bytes that the library behind @p instruction needs (0: none). Data about the executor, handed in: the CPU's
/// come from its kernels, a simulated device's from its cost profile.
using WorkspaceBytes = std::function<std::int64_t(const Program& program, const Instruction& instruction)>;

/// What lowering is told of the kernels that are to run.
struct KernelTraits {
  /// Of an executor that fuses nothing the workspaces say all.
  template <typename Bytes>
  requires std::is_invocable_r_v<std::int64_t, const Bytes&, const Program&, const Instruction&> KernelTraits(
      Bytes bytes, const Fusions& fused = {})
      : workspace_bytes(std::move(bytes)), fusions(fused) {}

  WorkspaceBytes workspace_bytes;
  Fusions fusions;
  bool verifies = true;  ///< false: of a Program that only its bytes and seconds are wanted of, and nobody runs
  /// False: of one that only its seconds and what lives at a time are wanted of; its buffers have no addresses, and it
  /// is not verified.
  bool assigns_addresses = true;
  /// False: of one without addresses that only what lives at a time is wanted of; its instructions wait for nothing.
  bool finds_waits = true;
};

/// The Program of rank @p rank. Equal inputs give equal Programs. verify(program) holds, and is checked unless
/// @p kernels say otherwise.
/// @throws Unsupported naming the part of the plan that cannot be lowered, with its numbers.
Program lower(const Plan& plan, const ModelGraph& graph, int rank, const KernelTraits& kernels);
/// The same in orders that @p generator makes, whatever the plan's schedule is called.
Program lower(const Plan& plan, const ModelGraph& graph, int rank, const KernelTraits& kernels,
              const OrderGenerator& generator);

/// What ranks do in a step, by place. @throws Unsupported as lower() does.
std::vector<StepOrder> step_orders(const Plan& plan, const ModelGraph& graph);
/// Which part of the pipeline of ranks a rank is, and which micro-batch of those that ranks take is its own: ranks at
/// one place do the same. The first stage's places come first. In a pyramid each rank has a place of its own.
int place_of_rank(const Mesh& mesh, int rank);

}  // namespace strata
