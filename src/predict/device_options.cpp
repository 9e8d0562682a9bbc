#include "predict/device_options.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "exec/cpu/convolution_choice.hpp"
#include "exec/device/attention_choice.hpp"
#include "predict/prepared_point.hpp"

namespace strata::predict {

bool may_use_nccl(const Experiment& experiment) {
  const CommunicationSection& c = experiment.communication;
  return c.device_transport == "nccl" || (c.device_transport == "auto" && c.emulated_gbit_per_s == 0.0);
}

cuda::Transport device_transport(const Experiment& experiment, const std::string& sharing) {
  const CommunicationSection& c = experiment.communication;
  if (c.device_transport == "host") return cuda::Transport::host;
  if (c.device_transport == "nccl") {
    if (!sharing.empty()) {
      throw Unsupported(fmt::format(
          "communication.device_transport = \"nccl\" needs a GPU of its own for every rank, and {}; \"host\" serves",
          sharing));
    }
    return cuda::Transport::nccl;
  }
  return sharing.empty() && may_use_nccl(experiment) ? cuda::Transport::nccl : cuda::Transport::host;
}

cuda::Transport profiled_device_transport(const Experiment& experiment, const CostProfile& profile) {
  const CommunicationSection& c = experiment.communication;
  if (c.device_transport != "auto" || c.emulated_gbit_per_s > 0.0) return device_transport(experiment, "");
  const std::string emulated = device_transport_name(cuda::Transport::host, "emulated_link");
  bool has_nccl = false;
  bool has_host = false;
  for (const Interference& row : profile.interference) {
    if (row.ranks_on_node != experiment.resources.ranks_per_node || row.transport == emulated) continue;
    (row.transport == "nccl" ? has_nccl : has_host) = true;
  }
  if (has_nccl && has_host) {
    throw UserError(fmt::format(
        "{}: communication.device_transport = \"auto\", and the profile of {} with {} ranks a node has times "
        "of both; accepted: \"nccl\", \"host\"",
        experiment.where("communication.device_transport"), profile.machine, experiment.resources.ranks_per_node));
  }
  return has_host ? cuda::Transport::host : cuda::Transport::nccl;
}

Experiment with_device_transport(Experiment experiment, cuda::Transport transport) {
  experiment.communication.device_transport = transport == cuda::Transport::nccl ? "nccl" : "host";
  return experiment;
}

cpu::Numerics cpu_numerics_of(const Experiment& experiment) { return {.winograd = experiment.cpu.winograd}; }

cuda::Numerics numerics_of(const Experiment& experiment) {
  using enum cuda::AttentionKernels;
  const std::string& attention = experiment.cuda.attention;
  return {.deterministic = experiment.cuda.deterministic,
          .tf32 = experiment.cuda.tf32,
          .attention = attention == "cudnn"    ? cudnn
                       : attention == "strata" ? strata
                                               : automatic,
          .time_products = experiment.cuda.time_products != "off" && !experiment.cuda.deterministic};
}

cuda::GraphUse graph_use_of(const Experiment& experiment) {
  const std::string& graphs = experiment.cuda.graphs;
  return graphs == "on" ? cuda::GraphUse::on : graphs == "off" ? cuda::GraphUse::off : cuda::GraphUse::automatic;
}

std::string attention_note(const Experiment& experiment, const Program& program) {
  if (!is_on_gpus(experiment)) return "";
  const cuda::Numerics numerics = numerics_of(experiment);
  const std::string kernels = cuda::attention_of(program, numerics);
  if (kernels.empty()) return "";
  const std::int64_t masks = cuda::dropout_mask_traffic(program, numerics);
  const std::string moved =
      masks == 0 ? "" : fmt::format("; its dropout masks move {} bytes more, which are not among these", masks);
  return fmt::format("# attention by {}{}\n", kernels, moved);
}

namespace {

/// What all ranks that say something say, or @p several: stages of a pipeline may hold different layers.
std::string of_all_ranks(const comm::World& world, const std::string& own, const std::string& several) {
  const std::vector<std::string> said = world.all_gather(own);
  std::set<std::string> different(said.begin(), said.end());
  different.erase("");
  return different.empty() ? "" : different.size() == 1 ? *different.begin() : several;
}

}  // namespace

std::map<std::string, std::string> device_choices(const comm::World& world, const Experiment& experiment,
                                                  const Program& program, cuda::Transport transport) {
  if (!is_on_gpus(experiment)) {
    const std::string convolutions =
        of_all_ranks(world, cpu::convolutions_of(program, cpu_numerics_of(experiment)), "winograd and direct");
    if (convolutions.empty()) return {};
    return {{"convolutions", convolutions}};
  }
  const auto collectives = transport == cuda::Transport::nccl ? CollectivesOn::device : CollectivesOn::host;
  const bool graph = cuda::uses_graph(world, program, collectives, graph_use_of(experiment));
  std::map<std::string, std::string> choices = {
      {"graphs", graph ? "yes" : "no"}, {"products", numerics_of(experiment).time_products ? "timed" : "named"}};
  const std::string attention =
      of_all_ranks(world, cuda::attention_of(program, numerics_of(experiment)), "cudnn and strata");
  if (!attention.empty()) choices["attention"] = attention;
  return choices;
}

std::string device_transport_name(cuda::Transport transport, const std::string& host) {
  if (host == "none") return host;
  return transport == cuda::Transport::nccl ? "nccl" : "managed_memory over " + host;
}

}  // namespace strata::predict
