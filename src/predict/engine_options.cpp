#include "predict/engine_options.hpp"

#include <algorithm>

namespace strata::predict {

comm::EngineOptions engine_options(const Experiment& experiment, std::size_t num_instructions) {
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
  options.num_ticket_slots = std::max(4096, static_cast<int>(num_instructions) + 64);
  return options;
}

}  // namespace strata::predict
