#pragma once

/// @file
/// An instruction as a kernel of any device sees it: addresses of its operands in an arena, its sizes and options, and
/// its random numbers. Read once, before the first step.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/random.hpp"
#include "exec/kernel_dims.hpp"
#include "ir/program/program.hpp"

namespace strata {

/// An instruction with its addresses.
class Arguments {
 public:
  Arguments(const Program& program, const Instruction& instruction, std::byte* arena)
      : program_(program), instruction_(instruction), arena_(arena) {}

  const Instruction& instruction() const { return instruction_; }
  std::int64_t integer(std::string_view key) const { return instruction_.attributes.integer(key); }
  double real(std::string_view key) const { return instruction_.attributes.real(key); }
  bool accumulates(int output) const {
    return ((instruction_.attributes.integer_or("accumulate", 0) >> output) & 1) != 0;
  }

  int num_inputs() const { return static_cast<int>(instruction_.inputs.size()); }
  int num_outputs() const { return static_cast<int>(instruction_.outputs.size()); }
  const Buffer& input_buffer(int i) const { return buffer(instruction_.inputs[static_cast<std::size_t>(i)]); }
  const Buffer& output_buffer(int i) const { return buffer(instruction_.outputs[static_cast<std::size_t>(i)]); }
  /// Null for an optional operand that is not there.
  std::byte* input(int i) const {
    return i < num_inputs() ? at(instruction_.inputs[static_cast<std::size_t>(i)]) : nullptr;
  }
  std::byte* output(int i) const {
    return i < num_outputs() ? at(instruction_.outputs[static_cast<std::size_t>(i)]) : nullptr;
  }
  template <typename T>
  T* input_as(int i) const {
    return reinterpret_cast<T*>(input(i));
  }
  template <typename T>
  T* output_as(int i) const {
    return reinterpret_cast<T*>(output(i));
  }
  std::int64_t output_elements(int i) const { return instruction_.outputs[static_cast<std::size_t>(i)].num_elements; }
  DType input_dtype(int i) const { return input_buffer(i).dtype; }
  DType output_dtype(int i) const { return output_buffer(i).dtype; }
  std::span<std::byte> workspace() const;

 private:
  const Buffer& buffer(const Operand& operand) const {
    return program_.buffers[static_cast<std::size_t>(operand.buffer)];
  }
  std::byte* at(const Operand& operand) const {
    return arena_ + buffer(operand).offset_bytes + operand.begin * size_of(buffer(operand).dtype);
  }
  const Program& program_;
  const Instruction& instruction_;
  std::byte* arena_;
};

/// A kernel's own numbers, apart from addresses: what both its call and its workspace need.
class KernelDims {
 public:
  KernelDims(const Program& program, const Instruction& in) : in_(in), program_(program) {}

  LinearDims linear() const;
  ConvolutionDims convolution() const;
  LayerNormDims layer_norm() const;
  RmsNormDims rms_norm() const;
  BatchNormDims batch_norm() const;
  EmbeddingDims embedding() const;
  MaxPoolDims max_pool() const;
  /// Of output 1, the sums of output 0 over its rows of `channels`.
  ColumnSumsDims bias_gradient() const;
  AveragePoolDims average_pool() const;
  ClassTokenDims class_token() const;
  FirstRowDims first_row() const;
  AttentionDims attention() const;
  RotaryDims rotary() const;
  CrossEntropyDims cross_entropy() const;  ///< of top_k too
  PermuteDims permute() const;
  SplitNormDims split_norm() const;
  SplitCrossEntropyDims split_cross_entropy() const;
  QuantizedDims quantized() const;
  bool accumulates(int output) const { return ((in_.attributes.integer_or("accumulate", 0) >> output) & 1) != 0; }
  /// Weight and bias are written by one call: their first contribution is the same one.
  bool accumulates_parameters(int first_output, int num_outputs) const;
  std::int64_t integer(std::string_view key) const { return in_.attributes.integer(key); }
  /// Elements from row to row of the activation of which a slice has some columns; 0: there is no slice.
  std::int64_t row() const { return in_.attributes.integer_or("row", 0); }
  /// Where the slice's columns of that activation begin.
  std::byte* columns(std::byte* activation, DType dtype) const {
    return activation + in_.attributes.integer_or("first_column", 0) * size_of(dtype);
  }
  float real(std::string_view key) const { return static_cast<float>(in_.attributes.real(key)); }
  DType input(int i) const { return dtype(in_.inputs[static_cast<std::size_t>(i)]); }
  DType output(int i) const { return dtype(in_.outputs[static_cast<std::size_t>(i)]); }

 private:
  PermuteDims runs(std::int64_t first, std::int64_t elements) const;
  DType dtype(const Operand& operand) const { return program_.buffers[static_cast<std::size_t>(operand.buffer)].dtype; }
  const Instruction& in_;
  const Program& program_;
};

/// One sequence of random numbers an operator and step: the same in forward, recomputation and backward.
constexpr RandomStream random_stream(std::uint64_t seed, std::uint64_t operator_stream, std::int64_t step) {
  return {seed, operator_stream ^ (0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(step + 1))};
}

}  // namespace strata
