#include "exec/cuda/input_load.hpp"

#include <exception>

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace strata::cuda {
namespace {

/// All that the host writes has four bytes: pixels are rounded on the device.
constexpr std::int64_t value_bytes = 4;

}  // namespace

InputLoad::InputLoad(const Arguments& a, InputSource& inputs, std::int64_t steps_per_body, StepValues& step_values)
    : inputs_(inputs),
      kernel_(a.instruction().kernel),
      dtype_(a.output_dtype(0)),
      steps_per_body_(steps_per_body),
      first_sample_(a.integer("first_sample")),
      num_samples_(a.integer("samples")),
      num_values_(a.output_elements(0)),
      num_targets_(a.num_outputs() > 1 ? a.output_elements(1) : 0),
      to_(a.output(0)),
      to_targets_(a.output_as<std::int32_t>(1)),
      places_{Place{PinnedMemory(num_values_ * value_bytes), PinnedMemory(num_targets_ * value_bytes)},
              Place{PinnedMemory(num_values_ * value_bytes), PinnedMemory(num_targets_ * value_bytes)}},
      addresses_(step_values.add<InputAddresses>(
          a.instruction().step, [this](const StepContext& context) { return addresses_of(context.step); })) {}

InputAddresses InputLoad::addresses_of(std::int64_t step) {
  const Place& place = place_of(step);
  return {.values = place.values.data(), .targets = place.targets.as<std::int32_t>()};
}

void InputLoad::prepare(std::int64_t step) {
  if (ahead_.valid()) ahead_.get();
  if (place_of(step).step != step) read(step);
}

void InputLoad::prepare_ahead(std::int64_t step, InputThread& thread) {
  if (ahead_.valid()) ahead_.get();
  ahead_ = thread.run([this, step] {
    try {
      read(step);
    } catch (const std::exception&) {
      // The step may never come; where it does, it is read again, and fails there.
    }
  });
}

void InputLoad::read(std::int64_t step) {
  Place& place = place_of(step);
  place.step = -1;
  const auto values = [&]<typename T>(T* data) { return std::span<T>(data, static_cast<std::size_t>(num_values_)); };
  const std::span targets(place.targets.as<std::int32_t>(), static_cast<std::size_t>(num_targets_));
  switch (kernel_) {
    case Kernel::load_tokens:
      inputs_.load_tokens(step, first_sample_, num_samples_, values(place.values.as<std::int32_t>()), targets);
      break;
    case Kernel::load_targets:
      inputs_.load_targets(step, first_sample_, num_samples_, values(place.values.as<std::int32_t>()));
      break;
    default: inputs_.load_images(step, first_sample_, num_samples_, values(place.values.as<float>()), targets); break;
  }
  place.step = step;
}

void InputLoad::queue(cudaStream_t stream) const {
  load_input(addresses_, dtype_, to_, num_values_, to_targets_, num_targets_, stream);
}

}  // namespace strata::cuda
