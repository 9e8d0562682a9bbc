/// @file
/// Collectives of no Program, to measure what NCCL does between the ranks of a job. The decision: as in a Program, the
/// operands lie in memory of NCCL's that is registered with it, and a message has a communicator of its own.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/ceil_div.hpp"
#include "exec/cuda/communicators.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/nccl_collective.hpp"
#include "exec/cuda_backend.hpp"

namespace strata::cuda {
namespace {

class Probe {
 public:
  Probe(const comm::World& world, const std::vector<int>& ranks, std::int64_t max_elements)
      : ranks_(ranks),
        bytes_(round_up(max_elements * size_of(DType::f32), alignment)),
        operands_(2 * bytes_, ArenaMemory::nccl),
        communicators_(uses(world.rank()), {.world = &world}) {
    streams_.push_back(std::make_unique<Stream>());
    check(cudaMemset(operands_.data(), 0, static_cast<std::size_t>(2 * bytes_)), "zeros");
    check(cudaDeviceSynchronize(), "zeros");
    communicators_.register_arena(operands_.data(), 2 * bytes_);
  }

  double seconds_of_one(Collective kind, std::int64_t num_elements, int times) {
    if (ranks_.size() < 2 || (kind == Collective::send && !sends_ && !receives_)) return 0.0;
    const int number = communicators_.number(kind == Collective::send ? message() : everybody());
    const std::string label = fmt::format("{} of {} elements outside of a step", to_string(kind), num_elements);
    const cudaStream_t stream = streams_.front()->get();
    comm::Request request;
    request.kind = kind == Collective::send && receives_ ? Collective::recv : kind;
    request.input = operands_.data();
    const bool in_place = kind == Collective::all_reduce;  // as in a step
    request.output = operands_.data() + (in_place ? 0 : bytes_);
    request.num_elements = num_elements;
    // One more goes first: members begin together after it, and while it runs the host queues the others.
    queue_collective(request, communicators_, number, label, stream);
    began_.record(stream);
    for (int i = 0; i < times; ++i) queue_collective(request, communicators_, number, label, stream);
    ended_.record(stream);
    const InFlight in_flight{.is_done = [this] { return ended_.complete(); }, .communicator = number, .label = &label};
    communicators_.wait(streams_, {&in_flight, 1});
    return static_cast<double>(ended_.ns_since(began_)) * 1e-9 / times;
  }

 private:
  static constexpr const char* name = "measured";
  static constexpr std::int64_t alignment = 256;  ///< as buffers in arenas have

  CommunicatorKey everybody() const { return {.ranks = ranks_, .group = name}; }
  CommunicatorKey message() const { return {.ranks = {ranks_[0], ranks_[1]}, .group = name, .messages = true}; }

  std::vector<CommunicatorUse> uses(int rank) {
    if (ranks_.size() < 2) return {};
    sends_ = rank == ranks_[0];
    receives_ = rank == ranks_[1];
    std::vector<CommunicatorUse> all = {{.key = everybody()}};
    if (sends_ || receives_) all.push_back({.key = message()});
    return all;
  }

  std::vector<int> ranks_;
  bool sends_ = false;
  bool receives_ = false;
  std::int64_t bytes_;  ///< of the input; the output follows
  DeviceArena operands_;
  Communicators communicators_;
  std::vector<std::unique_ptr<Stream>> streams_;
  Event began_{Event::Kind::timing};
  Event ended_{Event::Kind::timing};
};

}  // namespace

TimedCollectives nccl_collectives(const comm::World& world, const std::vector<int>& ranks, std::int64_t max_elements) {
  const auto probe = std::make_shared<Probe>(world, ranks, max_elements);
  return [probe](Collective kind, std::int64_t num_elements, int times) {
    return probe->seconds_of_one(kind, num_elements, times);
  };
}

}  // namespace strata::cuda
