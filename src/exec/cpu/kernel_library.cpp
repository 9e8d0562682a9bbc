#include "exec/cpu/kernel_library.hpp"

#include "base/instruction_set.hpp"
#include "base/instruction_sets.hpp"

#define STRATA_DECLARE(set) extern "C" const strata::cpu::KernelLibrary strata_cpu_kernels_##set;
STRATA_FOR_EACH_INSTRUCTION_SET(STRATA_DECLARE)
#undef STRATA_DECLARE

namespace strata::cpu {
const KernelLibrary& kernel_library() {
#define STRATA_COMPILED(set) {InstructionSet::set, &strata_cpu_kernels_##set},
  static const KernelLibrary* const library =
      widest_allowed<const KernelLibrary>({STRATA_FOR_EACH_INSTRUCTION_SET(STRATA_COMPILED)});
#undef STRATA_COMPILED
  return *library;
}

}  // namespace strata::cpu
