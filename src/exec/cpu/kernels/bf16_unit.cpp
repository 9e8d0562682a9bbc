#include "exec/cpu/kernels/bf16_unit.hpp"

#include "base/instruction_set.hpp"
#include "exec/cpu/kernels/amx_gemm.hpp"
#include "exec/cpu/kernels/f32_copy.hpp"

namespace strata::cpu {

Bf16Unit bf16_unit() {
  if (amx_available()) return Bf16Unit::tiles;
  const bool has_dot_products = dnnl_takes_bf16() && instruction_set() >= InstructionSet::avx512_bf16;
  return has_dot_products ? Bf16Unit::dot_products : Bf16Unit::none;
}

}  // namespace strata::cpu
