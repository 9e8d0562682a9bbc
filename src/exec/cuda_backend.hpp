#pragma once

/// @file
/// Runs on GPUs, for those who know nothing of CUDA: which device a rank has, its executor, its rates. There are two
/// implementations: cuda/backend.cpp, and without_cuda/backend.cpp, which refuses everything by name.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "exec/device/device_monitor.hpp"
#include "exec/device/graph_use.hpp"
#include "exec/device/numerics.hpp"
#include "exec/executor.hpp"
#include "exec/product_rates.hpp"
#include "exec/timed_collectives.hpp"
#include "ir/program/program.hpp"

namespace strata::cuda {

/// What carries collectives between ranks on GPUs.
enum class Transport : std::uint8_t {
  nccl,  ///< on the devices; each rank of the job has a GPU of its own
  host,  ///< the host's engine, in managed memory; ranks may share GPUs
};

/// A GPU.
struct Device {
  std::string name;
  std::int64_t memory_bytes = 0;
};
/// The first GPU that this process may use. Makes no context there.
/// @throws Unsupported in a build without CUDA, or where there is no usable GPU.
Device first_device();

/// This rank's GPU, which is the current one of the calling thread from now on.
struct SelectedDevice {
  Device device;
  /// Two ranks of the job that share a GPU, as text that names both; empty where each has its own. Equal on all ranks.
  std::string sharing;
};
/// Collective: the local rank modulo the node's GPUs, of those that CUDA_VISIBLE_DEVICES leaves.
/// @param may_use_nccl collectives may go from device to device, which is to be known before the driver is called.
/// @throws Unsupported as first_device(), the same on all ranks.
SelectedDevice select_device(const comm::World& world, bool may_use_nccl);

struct ExecutorOptions {
  Transport transport = Transport::host;
  Numerics numerics;
  GraphUse graphs = GraphUse::automatic;
  bool timing = false;              ///< see CudaOptions; without it the parts of a step's time are NaN
  double watchdog_seconds = 300.0;  ///< of collectives on the devices
  std::function<void(const comm::WatchdogReport&)> on_watchdog{};  ///< likewise
};
/// Collective, on the selected devices. All references outlive the executor.
/// @throws OutOfMemory, the same on all ranks, where a device's free memory is less than its ranks' arenas; otherwise
/// as CpuExecutor's constructor.
std::unique_ptr<Executor> make_executor(const Program& program, const comm::World& world, comm::Engine& engine,
                                        InputSource& inputs, std::uint64_t seed, const ExecutorOptions& options);

/// Counters of this rank's GPU.
std::unique_ptr<DeviceMonitor> make_monitor();

/// The fastest of a few square products of matrices on this rank's GPU, made as the executor makes them.
ProductRates measure_product_rates(DType dtype, const Numerics& numerics);
/// Bytes read plus written a second by copies within the memory of this rank's GPU.
double measure_memory_bytes_per_second();
/// Collective over @p world. @return by NCCL, on @p ranks: this rank's group, equal on its members, or none. Seconds
/// are those of the device, after one more that is not counted.
TimedCollectives nccl_collectives(const comm::World& world, const std::vector<int>& ranks, std::int64_t max_elements);

/// Memory of the host and of this rank's GPU, as arenas are where collectives go through the host.
class ManagedMemory {
 public:
  virtual ~ManagedMemory() = default;
  virtual std::byte* data() const = 0;
  /// Its first bytes are where a kernel that wrote them leaves them; returns when that is so.
  virtual void write_on_device(std::int64_t size_bytes) = 0;
};
/// @throws OutOfMemory; Unsupported where the host cannot use it while kernels run.
std::unique_ptr<ManagedMemory> make_managed_memory(std::int64_t size_bytes);

/// Name → version of what takes part in a run on GPUs with @p transport.
std::map<std::string, std::string> library_versions(Transport transport);

}  // namespace strata::cuda
