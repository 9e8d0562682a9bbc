#include "exec/cpu/convolution_choice.hpp"

#include <set>
#include <string_view>

#include "exec/cpu/kernel_library.hpp"

namespace strata::cpu {

std::string convolutions_of(const Program& program, const Numerics& numerics) {
  std::set<std::string_view> methods;
  for (const Instruction& in : program.body) {
    methods.insert(kernel_library().convolution_method(program, in, numerics));
  }
  methods.erase("");
  return std::string(methods.size() > 1 ? "winograd and direct" : methods.empty() ? "" : *methods.begin());
}

}  // namespace strata::cpu
