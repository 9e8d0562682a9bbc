#include "lower/step/empty_work.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

/// Kernels that combine what other ranks know of their rows: they have work while there are rows.
bool combines_parts(Kernel kernel) {
  return kernel == Kernel::norm_partial || kernel == Kernel::norm_apply || kernel == Kernel::norm_backward_partial ||
         kernel == Kernel::norm_backward_apply || kernel == Kernel::cross_entropy_partial ||
         kernel == Kernel::cross_entropy_apply;
}

bool has_work(const Instruction& in) {
  constexpr std::array<std::string_view, 9> sizes = {"rows",  "samples", "elements", "in",      "out",
                                                     "width", "heads",   "classes",  "channels"};
  // The gradient of a bias is a sum over rows, whatever inputs there are.
  const bool sums_rows = in.kernel == Kernel::linear_backward_weight && in.outputs.size() > 1;
  return std::ranges::all_of(sizes, [&](std::string_view key) {
    if (combines_parts(in.kernel) && key != "rows") return true;
    if (sums_rows && key == "in") return true;
    return in.attributes.integer_or(key, 1) != 0;
  });
}

}  // namespace

std::vector<Instruction> what_is_left_of(Instruction instruction) {
  if (instruction.is_collective() || has_work(instruction)) return {std::move(instruction)};
  STRATA_INVARIANT(instruction.kernel != Kernel::linear_forward || instruction.inputs.size() < 3 ||
                       instruction.outputs.front().num_elements == 0,
                   instruction.name + ": a bias is added by a rank without inputs");
  std::vector<Instruction> fills;
  const std::int64_t accumulate = instruction.attributes.integer_or("accumulate", 0);
  for (std::size_t o = 0; o < instruction.outputs.size(); ++o) {
    if ((accumulate >> o & 1) != 0) continue;
    const Operand& output = instruction.outputs[o];
    fills.push_back({.kernel = Kernel::fill,
                     .stream = instruction.stream,
                     .phase = instruction.phase,
                     .micro_batch = instruction.micro_batch,
                     .step = instruction.step,
                     .name = instruction.name,
                     .outputs = {output},
                     .attributes = {{"elements", output.num_elements}, {"value", 0.0}}});
  }
  return fills;
}

}  // namespace strata
