#include "exec/cpu/convolution_choice.hpp"

#include "exec/kernel_arguments.hpp"

namespace strata::cpu {

std::string convolutions_of(const Program& program, const Numerics& numerics) {
  bool some_by_winograd = false, some_direct = false;
  for (const Instruction& in : program.body) {
    const bool is_convolution = in.kernel == Kernel::convolution_forward ||
                                in.kernel == Kernel::convolution_backward_input ||
                                in.kernel == Kernel::convolution_backward_weight;
    if (!is_convolution) continue;
    const bool by_winograd = numerics.winograd && winograd_serves(KernelDims(program, in).convolution());
    (by_winograd ? some_by_winograd : some_direct) = true;
  }
  if (some_by_winograd && some_direct) return "winograd and direct";
  return some_by_winograd ? "winograd" : some_direct ? "direct" : "";
}

}  // namespace strata::cpu
