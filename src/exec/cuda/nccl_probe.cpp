/// @file
/// All-reduces of no Program, to measure what NCCL does between the ranks of a job.

#include <cuda_runtime_api.h>

#include <memory>
#include <numeric>

#include "exec/cuda/communicators.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda_backend.hpp"

namespace strata::cuda {
namespace {

struct Probe {
  Probe(const comm::World& world, std::int64_t max_elements)
      : values(max_elements * size_of(DType::f32), ArenaMemory::nccl),
        communicators({{.key = {.ranks = all_ranks(world), .group = "all"}}}, {.world = &world}) {}

  static std::vector<int> all_ranks(const comm::World& world) {
    std::vector<int> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  const std::string label = "all_reduce before training";
  DeviceArena values;
  Communicators communicators;
  std::vector<std::unique_ptr<Stream>> streams{1};
  Event done{Event::Kind::order};
};

}  // namespace

std::function<void(std::int64_t)> nccl_all_reduce(const comm::World& world, std::int64_t max_elements) {
  const auto probe = std::make_shared<Probe>(world, max_elements);
  probe->streams.front() = std::make_unique<Stream>();
  check(cudaMemset(probe->values.data(), 0, static_cast<std::size_t>(max_elements * size_of(DType::f32))), "zeros");
  check(cudaDeviceSynchronize(), "zeros");
  probe->communicators.register_arena(probe->values.data(), max_elements * size_of(DType::f32));
  return [probe](std::int64_t num_elements) {
    const cudaStream_t stream = probe->streams.front()->get();
    std::byte* const values = probe->values.data();
    probe->communicators.check_call(ncclAllReduce(values, values, static_cast<std::size_t>(num_elements), ncclFloat32,
                                                  ncclSum, probe->communicators.get(0), stream),
                                    probe->label, 0);
    probe->done.record(stream);
    const InFlight in_flight{.done = &probe->done, .communicator = 0, .label = &probe->label};
    probe->communicators.wait(probe->streams, {&in_flight, 1});
  };
}

}  // namespace strata::cuda
