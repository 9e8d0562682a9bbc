#pragma once

/// @file
/// Whether a Program's step becomes a graph of the device: decided without a device.

#include <cstdint>

#include "comm/world.hpp"
#include "exec/device/stream_order.hpp"
#include "ir/program/program.hpp"

namespace strata::cuda {

enum class GraphUse : std::uint8_t { automatic, on, off };

/// A step can be recorded where the host has no part in it. Messages must run beside each other, each rank's in an
/// order of its own: streams of a GPU let them, branches of a graph need not. Launches of a graph follow each other, so
/// that steps which overlap are not recorded. automatic: wherever it can.
/// @param where collectives are carried out. @throws Unsupported where it must be and cannot.
bool uses_graph(const Program& program, CollectivesOn where, GraphUse use);
/// Of all ranks, which NCCL asks to be of one mind: where one cannot, none does. Collective; what it throws it throws
/// on all ranks.
bool uses_graph(const comm::World& world, const Program& program, CollectivesOn where, GraphUse use);

}  // namespace strata::cuda
