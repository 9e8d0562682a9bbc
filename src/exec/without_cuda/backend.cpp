/// @file
/// GPUs in a build without CUDA: refused.

#include "base/error.hpp"
#include "exec/cuda_backend.hpp"

namespace strata::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Unsupported(
      "resources.device = \"cuda\": this strata is built without CUDA (cmake --preset cuda builds it with)");
}

}  // namespace

Device first_device() { refuse(); }
SelectedDevice select_device(const comm::World&, bool) { refuse(); }
std::unique_ptr<Executor> make_executor(const Program&, const comm::World&, comm::Engine&, InputSource&, std::uint64_t,
                                        const ExecutorOptions&) {
  refuse();
}
std::unique_ptr<DeviceMonitor> make_monitor() { refuse(); }
ProductRates measure_product_rates(DType, const Numerics&) { refuse(); }
double measure_memory_bytes_per_second() { refuse(); }
TimedCollectives nccl_collectives(const comm::World&, const std::vector<int>&, std::int64_t) { refuse(); }
std::unique_ptr<ManagedMemory> make_managed_memory(std::int64_t) { refuse(); }
std::map<std::string, std::string> library_versions(Transport) { refuse(); }

}  // namespace strata::cuda
