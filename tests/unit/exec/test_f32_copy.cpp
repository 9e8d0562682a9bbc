/// @file
/// Whether oneDNN takes bf16 is what it says when asked to; f32 copies of strided tensors, element by element, with
/// what lies between them untouched. The products that use them are tested by running their tests again with oneDNN
/// limited to AVX2 (tests/CMakeLists.txt).

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "exec/cpu/kernels/dnnl_context.hpp"
#include "exec/cpu/kernels/f32_copy.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_f32_copy {
namespace {

using dnnl::memory;
using test::random_tensor;
using test::Tensor;

TEST(F32Copy, TheDecisionIsTheLibrarys) {
  const auto builds = [](memory::data_type type) {
    const memory::desc square({8, 8}, type, memory::format_tag::ab);
    try {
      const dnnl::matmul::primitive_desc product({square, square, square}, dnnl_engine());
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  };
  EXPECT_TRUE(builds(memory::data_type::f32));
  EXPECT_TRUE(!dnnl_takes_bf16() || builds(memory::data_type::bf16));
  constexpr auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  EXPECT_EQ(dnnl_takes_bf16(), (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed)
      << "what oneDNN emulates is not asked for";
  const char* const limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (limit != nullptr && std::string(limit) == "AVX2") {
    EXPECT_FALSE(dnnl_takes_bf16());
  }
}

TEST(F32Copy, WhatIsComputableStaysAsItIs) {
  const memory::desc single({3, 5}, memory::data_type::f32, memory::dims{7, 1});
  EXPECT_EQ(computable(single), single);
  EXPECT_EQ(computable(memory::desc()), memory::desc());
  const memory::desc half({3, 5}, memory::data_type::bf16, memory::dims{7, 1});
  EXPECT_EQ(computable(half), dnnl_takes_bf16() ? half : F32Copy(half).layout());
  const memory::desc chosen({3, 5}, memory::data_type::bf16, memory::format_tag::any);
  EXPECT_EQ(computable(chosen),
            dnnl_takes_bf16() ? chosen : memory::desc({3, 5}, memory::data_type::f32, memory::format_tag::any));
}

/// Offset of every element of a tensor of three dims in the order of its indices.
std::vector<std::int64_t> offsets(const memory::dims& dims, const std::int64_t* strides) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < dims[0]; ++i) {
    for (std::int64_t j = 0; j < dims[1]; ++j) {
      for (std::int64_t k = 0; k < dims[2]; ++k) {
        result.push_back(i * strides[0] + j * strides[1] + k * strides[2]);
      }
    }
  }
  return result;
}

TEST(F32Copy, MovesEveryElementAndNothingElse) {
  struct Case {
    memory::dims dims, strides;
  };
  const Case cases[] = {
      {{2, 3, 5}, {15, 5, 1}},              // no gaps
      {{2, 5, 3}, {15, 1, 5}},              // transposed
      {{3, 7, 33}, {400, 41, 1}},           // gaps between rows and between matrices
      {{3, 7, 33}, {33, 130, 1}},           // heads side by side
      {{3, 7, 33}, {33, 1, 130}},           // and transposed
      {{1, 1, 70}, {90, 90, 1}},            // a row
      {{1, 70, 1}, {90, 1, 1}},             // a column
      {{1, 70, 1}, {900, 5, 1}},            // of a matrix: no two elements are neighbours
      {{2, 3, 9001}, {30000, 9100, 1}},     // more than a thread takes at a time
      {{11, 13, 300}, {13 * 301, 301, 1}},  // many short rows on all threads
      {{40, 30, 20}, {600, 20, 1}},         // no gaps, on all threads
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << testing::PrintToString(c.dims) << " strides "
                                    << testing::PrintToString(c.strides));
    const F32Copy copy(memory::desc(c.dims, memory::data_type::bf16, c.strides));
    const auto in_stored = offsets(c.dims, c.strides.data());
    const auto in_copy = offsets(c.dims, copy.layout().data.format_desc.blocking.strides);
    const auto num_elements = static_cast<std::int64_t>(in_stored.size());
    EXPECT_EQ(copy.layout().dims(), c.dims);
    EXPECT_EQ(copy.layout().get_size(), in_stored.size() * sizeof(float)) << "the copy has gaps";
    EXPECT_EQ(std::set(in_copy.begin(), in_copy.end()).size(), in_copy.size()) << "two elements in one place";

    const std::int64_t extent = *std::max_element(in_stored.begin(), in_stored.end()) + 1;
    const Tensor stored = random_tensor(DType::bf16, extent, "stored");
    test::expect_same_bits_on_any_threads([&] {
      Tensor wide(DType::f32, num_elements);
      copy.widen(static_cast<const bf16*>(stored.data()), static_cast<float*>(wide.data()));
      for (std::size_t i = 0; i < in_stored.size(); ++i) {
        EXPECT_EQ(wide.at(in_copy[i]), stored.at(in_stored[i]));
      }
      return wide.bits();
    });

    const Tensor values = random_tensor(DType::f32, num_elements, "values");
    const Tensor old = random_tensor(DType::bf16, extent, "old");
    Tensor expected(DType::bf16, extent);
    std::memcpy(expected.data(), old.data(), old.bits().size());
    for (std::size_t i = 0; i < in_stored.size(); ++i) {
      expected.set(in_stored[i], values.at(in_copy[i]));
    }
    test::expect_same_bits_on_any_threads([&] {
      Tensor narrow(DType::bf16, extent);
      std::memcpy(narrow.data(), old.data(), old.bits().size());
      copy.narrow(static_cast<const float*>(values.data()), static_cast<bf16*>(narrow.data()));
      EXPECT_EQ(narrow.bits(), expected.bits());
      return narrow.bits();
    });
  }
}

}  // namespace
}  // namespace strata::cpu::test_f32_copy
