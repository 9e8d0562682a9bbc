/// @file
/// Atomic axes, sets of them, groups, and the digits into which dims are cut.

#include <gmock/gmock.h>

#include <map>

#include "base/collective.hpp"
#include "partition/tensor_layout.hpp"

namespace strata::test_tensor_layout {
namespace {

using testing::ElementsAre;

Mesh mesh(int nodes, int ranks_per_node) { return {.nodes = nodes, .ranks_per_node = ranks_per_node, .axes = {}}; }

TEST(AtomicAxes, ArePrimesOfNodesThenOfRanksInANode) {
  const AtomicAxes axes(mesh(6, 4));
  ASSERT_EQ(axes.count(), 4);
  EXPECT_THAT((std::vector{axes.size(0), axes.size(1), axes.size(2), axes.size(3)}), ElementsAre(2, 3, 2, 2));
  EXPECT_EQ(axes.factor(0b0011), (Factor{1, 6}));
  EXPECT_EQ(axes.factor(0b1110), (Factor{4, 3}));
  EXPECT_EQ(axes.num_ranks(axes.all()), 24);
  EXPECT_EQ(AtomicAxes(mesh(1, 1)).all(), 0U);
}

TEST(AtomicAxes, GroupsTileTheRanksAndKnowTheirPlaces) {
  const AtomicAxes axes(mesh(3, 4));
  for (AxisSet set = 0; set <= axes.all(); ++set) {
    std::map<std::vector<int>, int> seen;
    for (int rank = 0; rank < 12; ++rank) {
      const std::vector<int> group = axes.group(set, rank);
      ASSERT_EQ(static_cast<int>(group.size()), axes.num_ranks(set));
      EXPECT_EQ(group[static_cast<std::size_t>(axes.index(set, rank))], rank);
      for (int a = 0; a < axes.count(); ++a) {
        if ((set >> a & 1U) != 0) continue;
        for (const int member : group) EXPECT_EQ(axes.coordinate(a, member), axes.coordinate(a, rank));
      }
      ++seen[group];
    }
    for (const auto& [group, count] : seen) EXPECT_EQ(count, static_cast<int>(group.size()));
  }
}

TEST(AtomicAxes, ChoosesAxesOfADegree) {
  const AtomicAxes axes(mesh(4, 4));  // axes 0, 1 across nodes, 2, 3 inside
  EXPECT_EQ(axes.choose({2, 1}, axes.all()), 0b0100U);
  EXPECT_EQ(axes.choose({2, 2}, axes.all()), 0b0101U);
  EXPECT_EQ(axes.choose({2, 1}, axes.all(), 0b1000U), 0b1000U);
  EXPECT_EQ(axes.choose({4, 1}, 0b0111U), std::nullopt);
  EXPECT_EQ(axes.choose({1, 1}, 0), 0U);
}

TEST(TensorLayout, IsWrittenAsWhatAxesDo) {
  const LayoutAxes linear{.p0 = 0b0001, .p1 = 0b0110, .p2 = 0b1000};
  const AtomicAxes axes(mesh(4, 4));
  EXPECT_EQ(to_text(linear.output(), axes), "S0:1x2,S1:2x2,P:2x1");
  EXPECT_EQ(to_text(linear.input(), axes), "S0:1x2,S1:2x1,B:2x2");
}

/// Whatever axes hold a dim, its ranks hold each element as often as there are copies; in equal numbers where the parts
/// divide it, and else as chunk_of cuts it into them.
TEST(TensorLayout, DigitsShareADimOut) {
  const AtomicAxes axes(mesh(3, 4));
  for (const auto& [size, granule] : {std::pair<std::int64_t, std::int64_t>{24, 1}, {23, 1}, {5, 1}, {35, 5}}) {
    for (AxisSet all = 0; all <= axes.all(); ++all) {
      DimCut cut{.axes = {}, .size = size, .granule = granule};  // the last axis outermost
      for (int a = axes.count(); a-- > 0;) {
        if (has(all, a)) cut.axes.push_back(a);
      }
      ASSERT_EQ(set_of(cut.axes), all);
      EXPECT_EQ(divides(axes, cut), size / granule % axes.num_ranks(all) == 0);
      for (AxisSet held = 0; held <= all; ++held) {
        if ((held & ~all) != 0) continue;
        std::vector<int> holders(static_cast<std::size_t>(size), 0);
        for (int rank = 0; rank < 12; ++rank) {
          const DimPart part = part_of(axes, cut, held, rank);
          EXPECT_EQ(part.count % granule, 0);
          EXPECT_TRUE(!divides(axes, cut) || part.count == size / axes.num_ranks(held));
          const StridedBlock block = block_of(std::vector{part});
          for (std::int64_t i = 0; i < part.count; ++i) ++holders[static_cast<std::size_t>(block.in_whole(i))];
        }
        for (const int count : holders) EXPECT_EQ(count, 12 / axes.num_ranks(held));
      }
    }
  }
}

/// 10 classes on 4 ranks: 3, 3, 3, 1; on 8: 2, 2, 2, 2, 2, 0, 0, 0.
TEST(TensorLayout, PartsAreTheChunksOfCollectives) {
  for (const int ranks : {2, 3, 4, 8, 12}) {
    const AtomicAxes axes(mesh(1, ranks));
    DimCut cut{.axes = {}, .size = 10};
    for (int a = 0; a < axes.count(); ++a) cut.axes.push_back(a);
    for (int rank = 0; rank < ranks; ++rank) {
      const Chunk chunk = chunk_of(10, ranks, rank);
      const DimPart part = part_of(axes, cut, axes.all(), rank);
      EXPECT_EQ(part.count, chunk.size());
      EXPECT_TRUE(part.count == 0 || block_of(std::vector{part}).in_whole(0) == chunk.begin);
    }
  }
}

}  // namespace
}  // namespace strata::test_tensor_layout
