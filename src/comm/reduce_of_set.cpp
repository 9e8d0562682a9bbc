/// @file
/// The reduction for one set of instructions (cmake/InstructionSets.cmake): blocks of 64 floats, loops of constant
/// length that the compiler keeps in vector registers, then one store of whole cache lines.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "comm/reduce.hpp"
#include "comm/stream_line.hpp"

namespace strata::comm {
namespace {

constexpr std::int64_t kBlock = 64;  // elements

/// bf16 elements are handled as their 16 bits here: the same conversions as strata::bf16, without branches, so that the
/// compiler turns the loops below into vector instructions.
float to_float(float value) { return value; }
float to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

template <class T>
T round_to(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet_nan = (word >> 16U) | 0x40U;
    return static_cast<std::uint16_t>((word & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
  }
}

template <Reduction kReduction>
float combine(float left, float right) {
  if constexpr (kReduction == Reduction::sum) {
    return left + right;
  } else {
    return left > right ? left : right;
  }
}

/// Unaligned element access without breaking aliasing rules; compiles to plain moves.
template <class T>
T load(const std::byte* input, std::int64_t index) {
  T value;
  std::memcpy(&value, input + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T, Reduction kReduction>
void reduce_some(std::span<const std::byte* const> inputs, std::byte* result, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    float value = to_float(load<T>(inputs[0], begin + i));
    for (std::size_t source = 1; source < inputs.size(); ++source) {
      value = combine<kReduction>(value, to_float(load<T>(inputs[source], begin + i)));
    }
    const T rounded = round_to<T>(value);
    std::memcpy(result + i * static_cast<std::int64_t>(sizeof(T)), &rounded, sizeof(T));
  }
}

/// kBlock elements from @p begin. Blocks are copied to and from arrays of T, which the compiler removes: it does not
/// vectorize loops that copy single elements of two bytes.
template <class T, Reduction kReduction>
void reduce_block(std::span<const std::byte* const> inputs, std::byte* result, std::int64_t begin) {
  std::array<T, kBlock> block;
  std::array<float, kBlock> values;
  const auto load_block = [&](std::size_t source) {
    std::memcpy(block.data(), inputs[source] + begin * static_cast<std::int64_t>(sizeof(T)), sizeof(block));
  };
  load_block(0);
  for (std::size_t i = 0; i < kBlock; ++i) {
    values[i] = to_float(block[i]);
  }
  for (std::size_t source = 1; source < inputs.size(); ++source) {
    load_block(source);
    for (std::size_t i = 0; i < kBlock; ++i) {
      values[i] = combine<kReduction>(values[i], to_float(block[i]));
    }
  }
  for (std::size_t i = 0; i < kBlock; ++i) {
    block[i] = round_to<T>(values[i]);
  }
  std::memcpy(result, block.data(), sizeof(block));
}

template <class T, Reduction kReduction>
void reduce_typed(std::span<const std::byte* const> inputs, std::byte* output, Store store, std::byte* second_output,
                  std::int64_t num_elements) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t kBlockBytes = kBlock * kSize;
  alignas(kLine) std::array<std::byte, static_cast<std::size_t>(kBlockBytes)> result;
  const auto emit = [&](std::int64_t begin, std::int64_t num_bytes, bool aligned) {
    std::byte* target = output + begin * kSize;
    if (aligned) {
      for (std::int64_t line = 0; line < kBlockBytes; line += kLine) {
        stream_line(target + line, result.data() + line);
      }
    } else {
      std::memcpy(target, result.data(), static_cast<std::size_t>(num_bytes));
    }
    if (second_output != nullptr) {
      std::memcpy(second_output + begin * kSize, result.data(), static_cast<std::size_t>(num_bytes));
    }
  };
  std::int64_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(output) % static_cast<std::uintptr_t>(kSize) != 0) {
    store = Store::cached;  // no element of such an output begins a line
  }
  if (store == Store::streaming) {
    // Elements up to the first whole cache line of the output.
    const auto past_line = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(output) % kLine);
    done = std::min(num_elements, past_line == 0 ? 0 : (kLine - past_line) / kSize);
    reduce_some<T, kReduction>(inputs, result.data(), 0, done);
    emit(0, done * kSize, false);
  }
  for (; done + kBlock <= num_elements; done += kBlock) {
    reduce_block<T, kReduction>(inputs, result.data(), done);
    emit(done, kBlockBytes, store == Store::streaming);
  }
  reduce_some<T, kReduction>(inputs, result.data(), done, num_elements - done);
  emit(done, (num_elements - done) * kSize, false);
}

}  // namespace

/// See reduce(), which chooses among the sets' and has checked the type.
extern "C" [[gnu::visibility("default")]] void STRATA_ENTRY(std::span<const std::byte* const> inputs, std::byte* output,
                                                            Store store, std::byte* second_output,
                                                            std::int64_t num_elements, DType dtype,
                                                            Reduction reduction) {
  const bool sum = reduction == Reduction::sum;
  if (dtype == DType::f32) {
    (sum ? reduce_typed<float, Reduction::sum> : reduce_typed<float, Reduction::max>)(inputs, output, store,
                                                                                      second_output, num_elements);
  } else {
    (sum ? reduce_typed<std::uint16_t, Reduction::sum>
         : reduce_typed<std::uint16_t, Reduction::max>)(inputs, output, store, second_output, num_elements);
  }
}

}  // namespace strata::comm
