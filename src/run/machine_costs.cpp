#include "run/machine_costs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <system_error>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/instruction_set.hpp"
#include "base/read_file.hpp"
#include "comm/collective_error.hpp"
#include "predict/machine_files.hpp"
#include "predict/prediction.hpp"
#include "profile/measured_machine.hpp"
#include "results/file_descriptor.hpp"

namespace strata::run {
namespace {

/// All that the numbers depend on.
std::string circumstances(const Experiment& e) {
  const CommunicationSection& c = e.communication;
  return fmt::format("{}\n{}\n{:016x}\n{} threads, peak {}\n{} {} {} alpha {} us {} Gbit/s\n{}",
                     predict::machine_identity(e), to_string(instruction_set()), binary_hash(),
                     e.resources.threads_per_rank, e.measure.peak, c.transport, c.device_transport, c.progress,
                     c.emulated_alpha_us, c.emulated_gbit_per_s,
                     e.emulates_nodes() ? fmt::format("inside nodes alpha {} us {} Gbit/s\n",
                                                      c.emulated_inside_alpha_us, c.emulated_inside_gbit_per_s)
                                        : "");
}

/// Under a name of its own first: others see the whole file or none. Of two that are written at once the later stays,
/// and is read back.
std::string kept(const std::string& file, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw UserError(fmt::format("results folder {}: {}", folder.string(), error.message()));
  results::replace_file(file, text, fmt::format("{}.{}", results::host_name(), ::getpid()));
  return read_file(file);
}

}  // namespace

std::string machine_file(const Experiment& experiment, const std::string& folder) {
  const std::string depends_on = circumstances(experiment);
  return fmt::format("{}{:016x}.toml", predict::machine_file_prefix(experiment, folder),
                     hash_bytes(std::as_bytes(std::span(depends_on))));
}

Cluster machine_costs(const comm::World& world, const Experiment& experiment, const std::string& folder,
                      cuda::Transport transport, profile::MeasuredPeak& peak) {
  std::string file, text;
  comm::on_rank_0(world, [&] {
    file = machine_file(experiment, folder);
    if (std::filesystem::exists(file)) text = read_file(file);
  });
  text = world.broadcast(text);
  if (text.empty()) {
    const Cluster measured = profile::measured_machine(world, experiment, transport, peak);
    comm::on_rank_0(world, [&] { text = kept(file, to_text(measured)); });
    text = world.broadcast(text);
  }
  return parse_cluster(text, world.broadcast(file));
}

}  // namespace strata::run
