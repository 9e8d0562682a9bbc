#include "exec/cuda/step_values.hpp"

#include "exec/cuda/check.hpp"

namespace strata::cuda {

StepValues::StepValues(std::size_t max_values)
    : max_values_(max_values),
      host_(static_cast<std::int64_t>(max_values * slot_bytes)),
      device_(static_cast<std::int64_t>(max_values * slot_bytes), ArenaMemory::device) {}

void StepValues::prepare(const StepContext& context) const {
  for (std::size_t i = 0; i < writers_.size(); ++i) writers_[i](context, host_.data() + i * slot_bytes);
}

void StepValues::copy(cudaStream_t stream) const {
  if (writers_.empty()) return;
  check(cudaMemcpyAsync(device_.data(), host_.data(), writers_.size() * slot_bytes, cudaMemcpyHostToDevice, stream),
        "copying the step's values");
}

}  // namespace strata::cuda
