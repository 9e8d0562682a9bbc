/// @file
/// Top-1 and top-5 against a full sort, with equal logits, few classes and rows that are none.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "exec/cpu/kernels/cross_entropy.hpp"
#include "exec/cpu/kernels/top_k.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_top_k {
namespace {

using test::random_tensor;
using test::Tensor;

struct Found {
  std::vector<float> loss, top_1, top_5;
  explicit Found(std::int64_t rows) : loss(static_cast<std::size_t>(rows)), top_1(loss), top_5(loss) {}
  TopKOutputs outputs() { return {.loss = loss.data(), .top_1 = top_1.data(), .top_5 = top_5.data()}; }
};

TEST(TopK, IsThePlaceOfTheTargetAmongSortedLogits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t classes : {2, 3, 5, 6, 33, 1000}) {
      const CrossEntropyDims dims{.rows = 40, .classes = classes, .dtype = dtype};
      Tensor logits = random_tensor(dtype, dims.rows * classes, "logits");
      // Few different values, so that many logits are equal.
      for (std::int64_t i = 0; i < logits.size(); i += 2) logits.set(i, std::round(2.0 * logits.at(i)));
      std::vector<std::int32_t> targets;
      for (std::int64_t r = 0; r < dims.rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 31 % classes));
      targets[3] = ignored_target;
      Found found(dims.rows);
      top_k(dims, logits.data(), targets.data(), found.outputs());
      std::vector<float> loss(found.loss.size());
      cross_entropy_forward(dims, logits.data(), targets.data(), loss.data());
      EXPECT_EQ(found.loss, loss);
      for (std::int64_t r = 0; r < dims.rows; ++r) {
        const auto row = static_cast<std::size_t>(r);
        std::vector<std::int32_t> order(static_cast<std::size_t>(classes));
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
          return logits.at(r * classes + a) > logits.at(r * classes + b);
        });
        const auto place = std::ranges::find(order, targets[row]) - order.begin();
        EXPECT_EQ(found.top_1[row], place < 1 ? 1.0F : 0.0F) << r << " of " << classes;
        EXPECT_EQ(found.top_5[row], place < 5 && targets[row] >= 0 ? 1.0F : 0.0F) << r << " of " << classes;
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu::test_top_k
