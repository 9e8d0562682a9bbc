#include "base/instruction_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

constexpr const char* variable = "STRATA_MAX_CPU_ISA";

constexpr std::array<std::pair<InstructionSet, std::string_view>, 4> names = {
    {{InstructionSet::avx2, "avx2"},
     {InstructionSet::avx512, "avx512"},
     {InstructionSet::avx512_bf16, "avx512_bf16"},
     {InstructionSet::amx, "amx"}}};

InstructionSet of_the_processor() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) {
    throw Unsupported("this processor has no AVX2 and FMA, which strata's kernels need");
  }
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                          __builtin_cpu_supports("avx512vl") != 0;
  if (!has_avx512) return InstructionSet::avx2;
  if (__builtin_cpu_supports("avx512bf16") == 0) return InstructionSet::avx512;
  const bool has_amx = __builtin_cpu_supports("amx-bf16") != 0 && __builtin_cpu_supports("amx-tile") != 0;
  return has_amx ? InstructionSet::amx : InstructionSet::avx512_bf16;
}

InstructionSet limit() {
  const char* value = std::getenv(variable);
  const auto* found = std::ranges::find(names, std::string_view(value), &decltype(names)::value_type::second);
  if (found == names.end()) {
    throw UserError(fmt::format("{} = \"{}\": accepted are avx2, avx512, avx512_bf16 and amx", variable, value));
  }
  return found->first;
}

}  // namespace

std::string_view to_string(InstructionSet set) {
  return std::ranges::find(names, set, &decltype(names)::value_type::first)->second;
}

bool instruction_set_is_limited() { return std::getenv(variable) != nullptr; }

InstructionSet instruction_set() {
  static const InstructionSet set =
      instruction_set_is_limited() ? std::min(of_the_processor(), limit()) : of_the_processor();
  return set;
}

}  // namespace strata
