#pragma once

/// @file
/// How a run uses its processors or GPUs: what [communication], [cpu] and [cuda] ask for, or one rule.

#include <map>
#include <string>

#include "config/experiment.hpp"
#include "exec/cpu/numerics.hpp"
#include "exec/cuda_backend.hpp"
#include "ir/machine/cost_profile.hpp"

namespace strata::predict {

/// nccl or host as asked for; auto: nccl where every rank has a GPU of its own and no link is emulated, host otherwise.
/// @param sharing see cuda::SelectedDevice.
/// @throws Unsupported where nccl is asked for and two ranks share a GPU.
cuda::Transport device_transport(const Experiment& experiment, const std::string& sharing);
/// What device_transport() may answer, as far as it is known before ranks have devices.
bool may_use_nccl(const Experiment& experiment);

/// The same where the ranks are not there to be asked: auto is what @p profile has for as many ranks a node, nccl where
/// it has nothing for them. @throws UserError where auto may be either, as the profile has both.
cuda::Transport profiled_device_transport(const Experiment& experiment, const CostProfile& profile);
/// @p experiment asking for @p transport, which its auto has come to.
Experiment with_device_transport(Experiment experiment, cuda::Transport transport);

/// Those of [cpu].
cpu::Numerics cpu_numerics_of(const Experiment& experiment);
/// Those of [cuda].
cuda::Numerics numerics_of(const Experiment& experiment);
cuda::GraphUse graph_use_of(const Experiment& experiment);

/// Of @p program on a GPU: whose kernels compute its attention, and what their dropout masks move that no operand says;
/// a line, empty on a CPU and without attention.
std::string attention_note(const Experiment& experiment, const Program& program);

/// What ranks do where [cpu] or [cuda] leaves it open, by name, for the results. Collective.
/// @throws Unsupported where [cuda] asks for what some rank's Program does not allow, on all ranks.
std::map<std::string, std::string> device_choices(const comm::World& world, const Experiment& experiment,
                                                  const Program& program, cuda::Transport transport);

/// For the results. @param host the engine's own name for the group of all ranks, "none" for one rank.
std::string device_transport_name(cuda::Transport transport, const std::string& host);

}  // namespace strata::predict
