#include "predict/engine_options.hpp"

#include <algorithm>

namespace strata::predict {

comm::EngineOptions engine_options(const Experiment& experiment, std::size_t num_operations) {
  const CommunicationSection& c = experiment.communication;
  comm::EngineOptions options;
  options.transport = c.transport;
  options.progress = c.progress == "thread"    ? comm::ProgressMode::thread
                     : c.progress == "polling" ? comm::ProgressMode::polling
                                               : comm::ProgressMode::automatic;
  if (c.emulated_gbit_per_s > 0.0) {
    options.emulated_link = comm::EmulatedLink{c.emulated_alpha_us * 1e-6, 8.0 / (c.emulated_gbit_per_s * 1e9)};
  }
  if (experiment.emulates_nodes()) {
    options.emulated_nodes =
        comm::EmulatedNodes{.ranks_per_node = static_cast<int>(experiment.resources.ranks_per_node),
                            .inside = {c.emulated_inside_alpha_us * 1e-6, 8.0 / (c.emulated_inside_gbit_per_s * 1e9)}};
  }
  options.watchdog_seconds = c.watchdog_seconds;
  options.num_compute_threads = static_cast<int>(experiment.resources.threads_per_rank);
  options.num_ticket_slots = std::max(4096, static_cast<int>(num_operations) + 64);
  return options;
}

std::size_t num_operations(const Program& program) {
  std::size_t count = program.body.size();
  for (const Instruction& in : program.body) {
    if (in.is_collective()) count += static_cast<std::size_t>(num_tensors(in));
  }
  return count;
}

}  // namespace strata::predict
