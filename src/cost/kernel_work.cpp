#include "cost/kernel_work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace strata {
namespace {

constexpr std::array<std::string_view, 15> size_keys = {"rows",       "in",       "out",      "samples",  "sequence",
                                                        "heads",      "kv_heads", "head_dim", "elements", "width",
                                                        "vocabulary", "classes",  "channels", "height",   "pieces"};
/// Integers that choose between variants of a kernel.
constexpr std::array<std::string_view, 10> variant_keys = {"accumulate", "causal", "kernel", "stride", "padding",
                                                           "block",      "bits",   "relu",   "gelu",   "adds"};

bool contains(const auto& keys, std::string_view key) { return std::ranges::find(keys, key) != keys.end(); }

std::int64_t size_bytes(const Program& program, const Operand& operand) {
  return operand.num_elements * size_of(program.buffers[static_cast<std::size_t>(operand.buffer)].dtype);
}

}  // namespace

std::int64_t bytes_touched(const Program& program, const Instruction& instruction) {
  std::int64_t total = 0;
  for (const Operand& operand : instruction.inputs) total += size_bytes(program, operand);
  const std::int64_t accumulate = instruction.attributes.integer_or("accumulate", 0);
  for (std::size_t i = 0; i < instruction.outputs.size(); ++i) {
    const std::int64_t bytes = size_bytes(program, instruction.outputs[i]);
    total += (accumulate >> i & 1) != 0 ? 2 * bytes : bytes;
  }
  // A slice has some columns of an activation, and its operand is all of it.
  if (const std::int64_t row = instruction.attributes.integer_or("row", 0); row > 0) {
    const bool linear = instruction.attributes.has("in");
    const std::int64_t others = row - instruction.attributes.integer(linear ? "in" : "width");
    const int times = instruction.kernel == Kernel::linear_backward_input && (accumulate & 1) != 0 ? 2 : 1;
    total -= times * instruction.attributes.integer("rows") * others * size_of(compute_dtype(program, instruction));
  }
  // One row of each sample is read, of an operand that has all.
  if (instruction.kernel == Kernel::first_row_forward) {
    const Operand& row = instruction.outputs.front();
    total -= (instruction.attributes.integer("sequence") - 1) * size_bytes(program, row);
  }
  // Updates read what they write.
  const Kernel k = instruction.kernel;
  if (k == Kernel::sgd || k == Kernel::sgd_momentum || k == Kernel::adam || k == Kernel::accumulate ||
      k == Kernel::running_statistics) {
    for (const Operand& operand : instruction.outputs) total += size_bytes(program, operand);
  }
  return total;
}

DType compute_dtype(const Program& program, const Instruction& instruction) {
  for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
    for (const Operand& operand : *operands) {
      const DType dtype = program.buffers[static_cast<std::size_t>(operand.buffer)].dtype;
      if (dtype == DType::f32 || dtype == DType::bf16) return dtype;
    }
  }
  return DType::f32;
}

KernelShape kernel_shape(const Program& program, const Instruction& instruction) {
  KernelShape shape;
  shape.kind =
      fmt::format("{} {}", kernel_signature(instruction.kernel).name, to_string(compute_dtype(program, instruction)));
  for (const Attributes::Entry& entry : instruction.attributes.entries()) {
    if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) {
      if (contains(size_keys, entry.key)) shape.sizes.push_back(static_cast<double>(*integer));
      // Slices of a linear add to what the first one writes: in products of any size that is no other kernel.
      if (entry.key == "accumulate" && instruction.kernel == Kernel::linear_forward) continue;
      // Whether the bias is added to is nothing beside the product.
      if (entry.key == "accumulate" && instruction.kernel == Kernel::linear_backward_weight &&
          instruction.outputs.size() == 2) {
        shape.kind += fmt::format(" accumulate={}", (*integer & 1) != 0 ? 3 : 0);
        continue;
      }
      if (contains(variant_keys, entry.key)) shape.kind += fmt::format(" {}={}", entry.key, *integer);
    } else if (entry.key == "dropout" && std::get<double>(entry.value) > 0.0) {
      shape.kind += " dropout";
    }
  }
  const double arithmetic = flops(instruction);
  shape.work = arithmetic > 0.0 ? arithmetic : static_cast<double>(bytes_touched(program, instruction));
  return shape;
}

}  // namespace strata
