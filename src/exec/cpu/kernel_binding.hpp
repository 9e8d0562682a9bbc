#pragma once

/// @file
/// Instruction → a call of a CPU kernel with pointers, sizes and attributes resolved once, before the first step.

#include <cstddef>
#include <functional>
#include <span>

#include "exec/executor.hpp"
#include "ir/program.hpp"

namespace strata::cpu {

using BoundKernel = std::function<void(const StepContext&)>;

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

/// @param inputs must outlive the result. @throws Unsupported naming a kernel or dtype that the CPU does not have.
BoundKernel bind_kernel(const Program& program, const Arguments& arguments, InputSource& inputs, std::uint64_t seed);

/// Scratch bytes of a kernel on the CPU with the present number of OpenMP threads: a WorkspaceBytes for lower().
std::int64_t workspace_bytes(const Program& program, const Instruction& instruction);

}  // namespace strata::cpu
