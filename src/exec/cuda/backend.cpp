#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <map>
#include <vector>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/cuda/device_info.hpp"
#include "exec/cuda/environment.hpp"
#include "exec/cuda/gpu_monitor.hpp"
#include "exec/cuda_backend.hpp"

namespace strata::cuda {
namespace {

constexpr const char* asked_for = "resources.device = \"cuda\"";

/// @throws Unsupported with the driver's reason.
int require_devices(int num_nccl_ranks) {
  set_environment(num_nccl_ranks);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    throw Unsupported(fmt::format("{}: no usable GPU on this machine: {}", asked_for, cudaGetErrorString(status)));
  }
  if (count == 0) throw Unsupported(fmt::format("{}: this machine has 0 GPUs", asked_for));
  return count;
}

/// Ranks on one GPU take its memory together.
void require_memory(const Program& program, const comm::World& world) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  const std::string identity = device_identity();
  std::int64_t needed = 0;
  for (const std::string& line : world.all_gather(fmt::format("{} {}", program.arena_bytes, identity))) {
    const std::size_t space = line.find(' ');
    if (line.substr(space + 1) == identity) needed += std::stoll(line);
  }
  comm::on_all_ranks(world, [&] {
    if (needed <= static_cast<std::int64_t>(free_bytes)) return;
    throw OutOfMemory(
        fmt::format("rank {}: OOM on the GPU {}: the arenas of its ranks need {} bytes, {} of {} are free",
                    world.rank(), identity, needed, free_bytes, total_bytes));
  });
}

}  // namespace

Device first_device() {
  require_devices(1);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return {.name = properties.name, .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
}

SelectedDevice select_device(const comm::World& world, bool may_use_nccl) {
  std::string identity;
  SelectedDevice selected;
  comm::on_all_ranks(world, [&] {
    try {
      const int count = require_devices(may_use_nccl ? world.size() : 1);
      check(cudaSetDevice(world.local_rank() % count), "cudaSetDevice");
      cudaDeviceProp properties{};
      check(cudaGetDeviceProperties(&properties, world.local_rank() % count), "cudaGetDeviceProperties");
      selected.device = {.name = device_name(), .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
      identity = device_identity();
    } catch (const std::exception& e) {
      throw Unsupported(fmt::format("{} (rank {} on node {})", e.what(), world.rank(),
                                    world.node_names()[static_cast<std::size_t>(world.node())]));
    }
  });
  std::map<std::string, int> rank_of_device;
  const std::vector<std::string> all = world.all_gather(identity);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto [first, is_new] = rank_of_device.emplace(all[rank], static_cast<int>(rank));
    if (is_new) continue;
    selected.sharing = fmt::format("ranks {} and {} share the GPU {}", first->second, rank, all[rank]);
    break;
  }
  return selected;
}

std::unique_ptr<Executor> make_executor(const Program& program, const comm::World& world, comm::Engine& engine,
                                        InputSource& inputs, std::uint64_t seed, const ExecutorOptions& options) {
  require_memory(program, world);
  CudaOptions ours{.numerics = options.numerics, .timing = options.timing, .graphs = options.graphs};
  if (options.transport == Transport::nccl) {
    ours.nccl = {.world = &world, .watchdog_seconds = options.watchdog_seconds, .on_watchdog = options.on_watchdog};
  } else if (!uses_graph(world, program, CollectivesOn::host, options.graphs)) {
    ours.graphs = GraphUse::off;  // by NCCL the executor asks the ranks itself
  }
  std::unique_ptr<CudaExecutor> executor;
  try {
    comm::on_all_ranks(world, [&] { executor = std::make_unique<CudaExecutor>(program, engine, inputs, seed, ours); });
  } catch (...) {
    if (executor) executor->abandon();  // the others of its communicators do not come
    throw;
  }
  if (options.numerics.time_products) executor->agree_on_products(world);
  return executor;
}

std::unique_ptr<DeviceMonitor> make_monitor() { return std::make_unique<GpuMonitor>(); }

std::map<std::string, std::string> library_versions(Transport transport) {
  std::map<std::string, std::string> versions = {{"cuda", library_versions()}};
  if (transport == Transport::nccl) versions["nccl"] = nccl_version();
  return versions;
}

}  // namespace strata::cuda
