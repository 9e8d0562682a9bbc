/// @file
/// Parts of tensors that layouts do not divide: what is said of a whole group by one of its members holds for all.

#include <gtest/gtest.h>

#include <algorithm>

#include "lower/layouts/cut_tensor.hpp"

namespace strata::test_cut_tensor {
namespace {

/// By every member against every other one.
std::int64_t longest_of_all(const AtomicAxes& axes, const CutTensor& tensor, const TensorLayout& from,
                            const TensorLayout& to, const std::vector<int>& group) {
  std::int64_t longest = 0;
  for (const int sender : group) {
    for (const int receiver : group) {
      longest = std::max(longest, num_elements(shared_part(axes, tensor, {from, sender}, {to, receiver})));
    }
  }
  return longest;
}

TEST(CutTensor, TheFirstOfAGroupHasTheLongestPart) {
  int num_compared = 0;
  for (const Mesh& mesh :
       {Mesh{.nodes = 1, .ranks_per_node = 6, .axes = {}}, Mesh{.nodes = 3, .ranks_per_node = 4, .axes = {}}}) {
    const AtomicAxes axes(mesh);
    AxisOrder outermost_first, innermost_first;
    for (int a = 0; a < axes.count(); ++a) {
      outermost_first.push_back(a);
      innermost_first.insert(innermost_first.begin(), a);
    }
    // Of every dim an axis splits one at most: those that travel are split otherwise before than they are behind.
    for (AxisSet over = 1; over <= axes.all(); ++over) {
      for (AxisSet stay = 0; stay <= axes.all(); ++stay) {
        if ((stay & over) != 0) continue;
        const TensorLayout by_samples{.samples = over, .features = stay}, by_features{.features = over | stay},
            gathered{.features = stay};
        for (const auto& [samples, features] : {std::pair{7, 5}, {12, 40}, {3, 100}, {25, 26}}) {
          const CutTensor tensor{.samples = {innermost_first, samples},
                                 .positions = 3,
                                 .sections = 2,
                                 .features = {outermost_first, features}};
          for (const auto& [from, to] : {std::pair{by_samples, by_features},
                                         {by_features, by_samples},
                                         {by_features, gathered},
                                         {gathered, by_samples}}) {
            for (const int rank : {0, mesh.num_ranks() - 1}) {
              const std::vector<int> group = axes.group(over, rank);
              ASSERT_EQ(longest_part(axes, tensor, from, to, group), longest_of_all(axes, tensor, from, to, group))
                  << samples << " samples, " << features << " features, over " << over << ", stay " << stay;
              ++num_compared;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(num_compared, (5 + 19) * 4 * 4 * 2);
}

}  // namespace
}  // namespace strata::test_cut_tensor
