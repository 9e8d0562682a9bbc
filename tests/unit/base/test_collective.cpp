/// @file
/// Chunks and bytes sent, where sizes divide and where they do not.

#include <gtest/gtest.h>

#include <set>

#include "base/collective.hpp"

namespace strata::test_collective {
namespace {

TEST(Chunk, CoversEverythingOnceInOrder) {
  for (const std::int64_t n : {0, 1, 7, 12, 1000003}) {
    for (const int p : {1, 2, 3, 5, 8}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < p; ++rank) {
        const Chunk chunk = chunk_of(n, p, rank);
        EXPECT_EQ(chunk.begin, next);
        EXPECT_LE(chunk.size(), (n + p - 1) / p);
        next = chunk.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(ElementsSent, RingFormulasOverAllRanks) {
  for (const std::int64_t n : {1, 7, 12, 1000}) {
    for (const int p : {2, 3, 4, 8}) {
      const auto total = [&](Collective kind, int root = 0) {
        std::int64_t sum = 0;
        for (int rank = 0; rank < p; ++rank) sum += elements_sent(kind, n, p, rank, root);
        return sum;
      };
      EXPECT_EQ(total(Collective::reduce_scatter), (p - 1) * n);
      EXPECT_EQ(total(Collective::all_gather), (p - 1) * n);
      EXPECT_EQ(total(Collective::all_reduce), 2 * (p - 1) * n);
      EXPECT_EQ(total(Collective::broadcast, p - 1), (p - 1) * n);
      EXPECT_EQ(total(Collective::reduce, p - 1), (p - 1) * n);
    }
  }
  EXPECT_EQ(elements_sent(Collective::all_reduce, 12, 4, 1), 2 * 3 * 12 / 4);
  EXPECT_EQ(elements_sent(Collective::all_to_all, 12, 4, 1), 9);
  EXPECT_EQ(elements_sent(Collective::reduce, 12, 4, 1, 2), 12);
  EXPECT_EQ(elements_sent(Collective::reduce, 12, 4, 2, 2), 0);
}

TEST(ElementsSent, OneRankSendsNothing) {
  EXPECT_EQ(elements_sent(Collective::all_reduce, 1000, 1, 0), 0);
  EXPECT_EQ(elements_sent(Collective::broadcast, 1000, 1, 0), 0);
  EXPECT_EQ(elements_sent(Collective::reduce, 1000, 1, 0), 0);
}

TEST(Collective, KindsAreNumberedAndNamed) {
  std::set<std::string_view> names;
  for (int kind = 0; kind < num_collectives; ++kind) names.insert(to_string(static_cast<Collective>(kind)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(num_collectives));
  EXPECT_FALSE(names.contains("?"));
  EXPECT_EQ(to_string(static_cast<Collective>(num_collectives)), "?");
}

}  // namespace
}  // namespace strata::test_collective
