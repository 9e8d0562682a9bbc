#include "comm/reduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/instruction_set.hpp"
#include "base/instruction_sets.hpp"
#include "comm/stream_line.hpp"

using ReduceFunction = void(std::span<const std::byte* const> inputs, std::byte* output, strata::comm::Store store,
                            std::byte* second_output, std::int64_t num_elements, strata::DType dtype,
                            strata::Reduction reduction);

#define STRATA_DECLARE(set) extern "C" ReduceFunction strata_reduce_##set;
STRATA_FOR_EACH_INSTRUCTION_SET(STRATA_DECLARE)
#undef STRATA_DECLARE

namespace strata::comm {
void require_reducible(DType dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16) {
    throw Unsupported(fmt::format("a reduction of {}: only f32 and bf16 are reduced", to_string(dtype)));
  }
}

void reduce(std::span<const std::byte* const> inputs, std::byte* output, Store store, std::byte* second_output,
            std::int64_t num_elements, DType dtype, Reduction reduction) {
#define STRATA_COMPILED(set) {InstructionSet::set, strata_reduce_##set},
  static ReduceFunction* const of_set =
      widest_allowed<ReduceFunction>({STRATA_FOR_EACH_INSTRUCTION_SET(STRATA_COMPILED)});
#undef STRATA_COMPILED
  require_reducible(dtype);
  of_set(inputs, output, store, second_output, num_elements, dtype, reduction);
}

void copy(std::byte* output, const std::byte* input, std::int64_t num_bytes, Store store) {
  if (num_bytes == 0) return;  // An empty part may have no address, which memcpy does not allow.
  if (store == Store::cached) {
    std::memcpy(output, input, static_cast<std::size_t>(num_bytes));
    return;
  }
  const auto past_line = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(output) % kLine);
  std::int64_t done = std::min(num_bytes, past_line == 0 ? 0 : kLine - past_line);
  std::memcpy(output, input, static_cast<std::size_t>(done));
  for (; done + kLine <= num_bytes; done += kLine) {
    stream_line(output + done, input + done);
  }
  std::memcpy(output + done, input + done, static_cast<std::size_t>(num_bytes - done));
}

void finish_streaming() { _mm_sfence(); }

}  // namespace strata::comm
