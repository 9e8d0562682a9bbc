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
  return std::ranges::none_of(in.attributes.entries(), [&](const Attributes::Entry& entry) {
    if (entry.value != Attributes::Value(std::int64_t{0})) return false;
    if (combines_parts(in.kernel) && entry.key != "rows") return false;
    if (sums_rows && entry.key == "in") return false;
    return std::ranges::find(sizes, entry.key) != sizes.end();
  });
}

}  // namespace

void emit_what_is_left(const Place& here, Instruction&& instruction) {
  if (instruction.is_collective() || has_work(instruction)) {
    here.emit(std::move(instruction));
    return;
  }
  STRATA_INVARIANT(instruction.kernel != Kernel::linear_forward || instruction.inputs.size() < 3 ||
                       instruction.outputs.front().num_elements == 0,
                   instruction.name + ": a bias is added by a rank without inputs");
  const std::int64_t accumulate = instruction.attributes.integer_or("accumulate", 0);
  for (std::size_t o = 0; o < instruction.outputs.size(); ++o) {
    if ((accumulate >> o & 1) != 0) continue;
    const Operand& output = instruction.outputs[o];
    Instruction fill;
    fill.kernel = Kernel::fill;
    fill.stream = instruction.stream;
    fill.phase = instruction.phase;
    fill.micro_batch = instruction.micro_batch;
    fill.step = instruction.step;
    fill.name = instruction.name;
    fill.outputs.push_back(output);
    fill.attributes = {{"elements", output.num_elements}, {"value", 0.0}};
    here.emit(std::move(fill));
  }
}

}  // namespace strata
