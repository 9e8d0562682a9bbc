#include "exec/cuda/input_load.hpp"

#include <algorithm>

#include "base/dtype.hpp"
#include "exec/cuda/check.hpp"

namespace strata::cuda {
namespace {

template <typename T>
std::span<T> as(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

InputLoad::InputLoad(const Arguments& a, InputSource& inputs)
    : inputs_(inputs),
      kernel_(a.instruction().kernel),
      dtype_(a.output_dtype(0)),
      first_sample_(a.integer("first_sample")),
      num_samples_(a.integer("samples")),
      num_bytes_(static_cast<std::size_t>(a.output_elements(0) * size_of(dtype_))),
      num_targets_(a.num_outputs() > 1 ? static_cast<std::size_t>(a.output_elements(1)) : 0),
      to_(a.output(0)),
      to_targets_(a.output(1)),
      values_(static_cast<std::int64_t>(num_bytes_)),
      targets_(static_cast<std::int64_t>(num_targets_ * sizeof(std::int32_t))),
      pixels_(kernel_ == Kernel::load_images && dtype_ != DType::f32 ? static_cast<std::size_t>(a.output_elements(0))
                                                                     : 0) {}

void InputLoad::prepare(std::int64_t step) {
  const std::span<std::byte> values(values_.data(), num_bytes_);
  const std::span targets(targets_.as<std::int32_t>(), num_targets_);
  switch (kernel_) {
    case Kernel::load_tokens:
      inputs_.load_tokens(step, first_sample_, num_samples_, as<std::int32_t>(values), targets);
      return;
    case Kernel::load_targets:
      inputs_.load_targets(step, first_sample_, num_samples_, as<std::int32_t>(values));
      return;
    default: break;
  }
  if (dtype_ == DType::f32) {
    inputs_.load_images(step, first_sample_, num_samples_, as<float>(values), targets);
    return;
  }
  inputs_.load_images(step, first_sample_, num_samples_, pixels_, targets);
  std::ranges::transform(pixels_, as<bf16>(values).begin(), [](float value) { return bf16(value); });
}

void InputLoad::queue(cudaStream_t stream) const {
  const auto copy = [&](std::byte* to, const std::byte* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "loading inputs");
  };
  copy(to_, values_.data(), num_bytes_);
  if (num_targets_ > 0) copy(to_targets_, targets_.data(), num_targets_ * sizeof(std::int32_t));
}

}  // namespace strata::cuda
