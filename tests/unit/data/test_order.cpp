/// @file
/// The global order: every sample once an epoch, the same for any number of ranks, different for each epoch and seed.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "data/order.hpp"

namespace strata::data::test_order {
namespace {

class Permutation : public testing::TestWithParam<std::int64_t> {};

TEST_P(Permutation, IsABijection) {
  const std::int64_t size = GetParam();
  for (const std::uint64_t epoch : {0ULL, 1ULL, 1ULL << 40U}) {
    std::vector<int> hits(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t image = permuted(i, size, 42, epoch);
      ASSERT_GE(image, 0);
      ASSERT_LT(image, size);
      ++hits[static_cast<std::size_t>(image)];
    }
    EXPECT_EQ(hits, std::vector<int>(static_cast<std::size_t>(size), 1)) << "epoch " << epoch;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Permutation, testing::Values(1, 2, 3, 5, 7, 8, 9, 1000, 1024, 65537));

TEST(Order, PermutesSizesOfMoreThan32Bits) {
  constexpr std::int64_t size = (std::int64_t{1} << 62U) + 12345;
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    const std::int64_t image = permuted(i, size, 1, 0);
    ASSERT_GE(image, 0);
    ASSERT_LT(image, size);
    largest = std::max(largest, image);
  }
  EXPECT_GT(largest, size / 2);
}

/// Uniform where it matters: where sample 0 to 9 land over many seeds, as a chi-square statistic.
TEST(Order, EveryPlaceIsEquallyLikely) {
  constexpr std::int64_t size = 10;
  constexpr int num_seeds = 5000;
  for (std::int64_t index = 0; index < size; ++index) {
    std::vector<int> counts(size);
    for (std::uint64_t seed = 0; seed < num_seeds; ++seed) {
      ++counts[static_cast<std::size_t>(permuted(index, size, seed, 3))];
    }
    double chi_square = 0.0;
    for (const int count : counts) {
      chi_square += (count - num_seeds / 10.0) * (count - num_seeds / 10.0) / (num_seeds / 10.0);
    }
    EXPECT_LT(chi_square, 33.7) << "index " << index;  // 9 degrees of freedom, p = 1e-4
  }
}

TEST(Order, EpochsAndSeedsDiffer) {
  constexpr std::int64_t size = 1000;
  int fixed = 0;
  int same_in_next_epoch = 0;
  int same_under_next_seed = 0;
  double correlation = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t image = permuted(i, size, 1, 0);
    fixed += image == i;
    same_in_next_epoch += image == permuted(i, size, 1, 1);
    same_under_next_seed += image == permuted(i, size, 2, 0);
    correlation += (static_cast<double>(i) - 499.5) * (static_cast<double>(image) - 499.5) / (1000.0 * 1000.0 / 12.0);
  }
  // Each count is nearly Poisson of mean 1, the correlation normal of deviation 0.032.
  EXPECT_LT(fixed, 9);
  EXPECT_LT(same_in_next_epoch, 9);
  EXPECT_LT(same_under_next_seed, 9);
  EXPECT_LT(std::abs(correlation / size), 0.13);
}

TEST(Order, EverySampleOncePerEpochAlsoWhenBatchesStraddleEpochs) {
  const Order order{.num_samples = 10, .global_batch = 4, .seed = 3, .shuffle = true};
  std::vector<int> hits(10);
  for (std::int64_t step = 0; step < 5; ++step) {  // 20 samples: two epochs
    for (std::int64_t position = 0; position < 4; ++position) {
      ++hits[static_cast<std::size_t>(order.sample(step, position))];
    }
  }
  EXPECT_EQ(hits, std::vector<int>(10, 2));
  EXPECT_EQ(order.epoch(2), 0);  // samples 8 to 11
  EXPECT_EQ(order.epoch(3), 1);
}

TEST(Order, EachEpochHasAnOrderOfItsOwn) {
  const Order order{.num_samples = 1000, .global_batch = 100, .seed = 3, .shuffle = true};
  for (const std::int64_t epoch : {1, 2, 5}) {
    int same = 0;
    for (std::int64_t i = 0; i < 1000; ++i) {
      const std::int64_t sample = order.sample(10 * epoch + i / 100, i % 100);
      EXPECT_EQ(sample, permuted(i, 1000, 3, static_cast<std::uint64_t>(epoch)));
      same += sample == order.sample(i / 100, i % 100);
    }
    EXPECT_LT(same, 9) << "nearly Poisson of mean 1";
  }
}

TEST(Order, BatchMayExceedTheEpoch) {
  const Order order{.num_samples = 3, .global_batch = 7, .seed = 3, .shuffle = true};
  std::vector<int> hits(3);
  for (std::int64_t step = 0; step < 3; ++step) {
    for (std::int64_t position = 0; position < 7; ++position) {
      ++hits[static_cast<std::size_t>(order.sample(step, position))];
    }
  }
  EXPECT_EQ(hits, std::vector<int>(3, 7));
}

TEST(Order, WithoutShuffleIsTheDatasetsOwn) {
  const Order order{.num_samples = 5, .global_batch = 3, .seed = 3, .shuffle = false};
  std::vector<std::int64_t> samples;
  for (std::int64_t step = 0; step < 3; ++step) {
    for (std::int64_t position = 0; position < 3; ++position) {
      samples.push_back(order.sample(step, position));
    }
  }
  EXPECT_EQ(samples, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 0, 1, 2, 3}));
}

/// Pinned values: a change of the order changes what every recorded run was trained on.
TEST(Order, IsTheOneOfEarlierVersions) {
  std::vector<std::int64_t> images;
  for (std::int64_t i = 0; i < 8; ++i) {
    images.push_back(permuted(i, 1000, 1, 0));
  }
  EXPECT_EQ(images, (std::vector<std::int64_t>{463, 428, 241, 834, 180, 548, 612, 705}));
}

}  // namespace
}  // namespace strata::data::test_order
