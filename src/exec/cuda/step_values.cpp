#include "exec/cuda/step_values.hpp"

#include "exec/cuda/check.hpp"

namespace strata::cuda {

StepValues::StepValues(std::size_t max_values, int num_sets)
    : max_values_(max_values),
      host_(static_cast<std::int64_t>(static_cast<std::size_t>(num_sets) * set_bytes())),
      device_(static_cast<std::int64_t>(set_bytes()), ArenaMemory::device) {
  for (int set = 0; num_sets > 1 && set < num_sets; ++set) {
    copied_.push_back(std::make_unique<Event>(Event::Kind::order));
  }
}

void StepValues::prepare(int set, std::int64_t run_number, const ContextOf& context_of) const {
  std::byte* to = set_data(set);
  std::memcpy(to, &run_number, sizeof run_number);
  for (const Writer& writer : writers_) {
    to += slot_bytes;
    if (const StepContext* const context = context_of(writer.step)) writer.write(*context, to);
  }
}

void StepValues::copy(int set, cudaStream_t stream) const {
  check(cudaMemcpyAsync(device_.data(), set_data(set), (writers_.size() + 1) * slot_bytes, cudaMemcpyHostToDevice,
                        stream),
        "copying the step's values");
  if (!copied_.empty()) copied_[static_cast<std::size_t>(set)]->record(stream);
}

}  // namespace strata::cuda
