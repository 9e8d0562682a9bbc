#pragma once

/// @file
/// What a Program asks of a device, instruction by instruction: bytes over its memory bus, arithmetic, and the least
/// time that both leave, by the device's nameplate. No launch, no efficiency: what a kernel takes more is its own, and
/// a change that moves fewer bytes shows before any device has run it.

#include <cstdint>
#include <string>

#include "ir/machine/cluster.hpp"
#include "ir/program/program.hpp"

namespace strata {

/// Of a kernel.
struct RooflineCost {
  std::int64_t bytes = 0;  ///< see bytes_touched()
  double flops = 0.0;
  double seconds = 0.0;          ///< the larger of what its bytes and its arithmetic take
  bool is_memory_bound = false;  ///< its bytes take longer
};

/// @param instruction a kernel of @p program. @throws UserError naming a rate that the cluster does not say.
RooflineCost roofline_cost(const Program& program, const Instruction& instruction, const Cluster& cluster);

/// One repetition of the body: a line an instruction, then sums by kernel, longest first. Collectives have bytes alone,
/// those that the rank sends.
std::string roofline_text(const Program& program, const Cluster& cluster);

}  // namespace strata
