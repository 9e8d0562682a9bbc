#include "profile/engine_collectives.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "exec/cuda_backend.hpp"

namespace strata::profile {
namespace {

/// The input or the output.
class Operand {
 public:
  Operand(std::int64_t max_elements, OperandMemory memory) {
    const std::int64_t bytes = max_elements * size_of(DType::f32);
    if (memory == OperandMemory::managed) {
      managed_ = cuda::make_managed_memory(bytes);
    } else {
      host_.resize(static_cast<std::size_t>(bytes));
    }
  }
  std::byte* data() { return managed_ ? managed_->data() : host_.data(); }
  void return_to_device(std::int64_t num_elements) {
    if (managed_) managed_->write_on_device(num_elements * size_of(DType::f32));
  }

 private:
  std::unique_ptr<cuda::ManagedMemory> managed_;
  std::vector<std::byte> host_;
};

struct Operands {
  Operand input, output;
};

}  // namespace

std::vector<int> all_ranks(const comm::World& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TimedCollectives engine_collectives(comm::Engine& engine, int group, const std::vector<int>& ranks, int rank,
                                    std::int64_t max_elements, OperandMemory memory) {
  const auto operands = std::make_shared<Operands>(Operands{{max_elements, memory}, {max_elements, memory}});
  const auto index = std::ranges::find(ranks, rank) - ranks.begin();
  return [&engine, group, index, operands](Collective kind, std::int64_t num_elements, int times) {
    if (kind == Collective::send && index > 1) return 0.0;
    const std::string label = fmt::format("{} of {} elements outside of a step", to_string(kind), num_elements);
    comm::Request request;
    request.kind = kind == Collective::send && index == 1 ? Collective::recv : kind;
    request.peer = kind == Collective::send && index == 0 ? 1 : 0;
    const bool in_place = kind == Collective::all_reduce;  // as in a step
    request.input = operands->input.data();
    request.output = in_place ? operands->input.data() : operands->output.data();
    request.num_elements = num_elements;
    request.group = group;
    request.label = label;
    double seconds = 0.0;
    for (int i = 0; i < times; ++i) {
      operands->input.return_to_device(num_elements);
      operands->output.return_to_device(num_elements);
      const auto begin = std::chrono::steady_clock::now();
      engine.wait(engine.post(request));
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    return seconds / times;
  };
}

}  // namespace strata::profile
