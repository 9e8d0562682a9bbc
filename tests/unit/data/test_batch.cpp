/// @file
/// One step's global batch is the same rows whatever the number of ranks that gather it.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/error.hpp"
#include "data/batch.hpp"
#include "data/cifar10.hpp"
#include "temporary_folder.hpp"

namespace strata::data::test_batch {
namespace {

/// The global batches of three steps as `num_ranks` ranks gather them, each in micro-batches of two samples.
std::vector<std::int32_t> gather_tokens(const TokenDataset& dataset, const Order& order, std::int64_t num_ranks) {
  const std::int64_t length = dataset.sequence_length();
  const std::int64_t per_rank = order.global_batch / num_ranks;
  std::vector<std::int32_t> all;
  for (std::int64_t step = 0; step < 3; ++step) {
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      for (std::int64_t first = 0; first < per_rank; first += 2) {
        std::vector<std::int32_t> input(static_cast<std::size_t>(2 * length));
        std::vector<std::int32_t> target(input.size());
        load_tokens(dataset, order, step, rank * per_rank + first, input, target);
        all.insert(all.end(), input.begin(), input.end());
        all.insert(all.end(), target.begin(), target.end());
      }
    }
  }
  return all;
}

TEST(Batch, TokensAreTheSameForAnyNumberOfRanks) {
  const auto dataset =
      make_token_dataset({.format = Format::synthetic, .sequence_length = 7, .vocabulary = 101, .num_samples = 50});
  const Order order{.num_samples = 50, .global_batch = 24, .seed = 9, .shuffle = true};
  const std::vector<std::int32_t> one = gather_tokens(*dataset, order, 1);
  ASSERT_EQ(one.size(), 3U * 24U * 14U);
  for (const std::int64_t num_ranks : {2, 3, 4}) {
    EXPECT_EQ(gather_tokens(*dataset, order, num_ranks), one) << num_ranks << " ranks";
  }
  EXPECT_NE(gather_tokens(*dataset, {.num_samples = 50, .global_batch = 24, .seed = 10, .shuffle = true}, 1), one);
}

TEST(Batch, ImagesAreTheSameForAnyNumberOfRanks) {
  const auto dataset =
      make_image_dataset({.format = Format::synthetic, .image_size = 5, .num_classes = 4, .num_samples = 20});
  const Order order{.num_samples = 20, .global_batch = 12, .seed = 9, .shuffle = true};
  constexpr std::size_t floats = 5 * 5 * 3;
  std::vector<float> one(12 * floats);
  std::vector<std::int32_t> one_labels(12);
  load_images(*dataset, order, 1, 0, one, one_labels);
  for (const std::size_t num_ranks : {2U, 3U, 4U}) {
    std::vector<float> pixels(12 * floats);
    std::vector<std::int32_t> labels(12);
    const std::size_t per_rank = 12 / num_ranks;
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      load_images(*dataset, order, 1, static_cast<std::int64_t>(rank * per_rank),
                  std::span(pixels).subspan(rank * per_rank * floats, per_rank * floats),
                  std::span(labels).subspan(rank * per_rank, per_rank));
    }
    EXPECT_EQ(pixels, one) << num_ranks << " ranks";
    EXPECT_EQ(labels, one_labels) << num_ranks << " ranks";
  }
}

TEST(Batch, VariedImagesAreTheSameForAnyParts) {
  const TemporaryFolder folder;
  const auto synthetic = make_image_dataset({.format = Format::synthetic, .num_samples = 5});
  write_cifar10(folder.path("5.bin"), *synthetic, 5);
  const auto cifar = make_image_dataset({.format = Format::cifar10, .paths = {folder.path("5.bin")}});
  const auto vectors = make_image_dataset({.format = Format::synthetic, .vector_values = 1000, .num_samples = 5});
  const Order order{.num_samples = 5, .global_batch = 12, .seed = 9, .shuffle = true};
  for (const ImageDataset* dataset : {synthetic.get(), cifar.get(), vectors.get()}) {
    const auto floats = static_cast<std::size_t>(dataset->values_per_sample());
    std::vector<float> plain(12 * floats);
    load_images(*dataset, order, 1, 0, plain, {});
    for (const Augmentation& how : {Augmentation{.crop = true, .flip = true}, Augmentation{.resized_crop = true}}) {
      std::vector<float> one(12 * floats);
      std::vector<std::int32_t> labels(12);
      load_images(*dataset, order, 1, 0, one, labels, how);
      EXPECT_NE(one, plain);
      // Of two ranks, of five with parts that differ, and of twelve.
      for (const std::vector<std::size_t>& parts :
           {std::vector<std::size_t>{6, 6}, {3, 1, 4, 2, 2}, std::vector<std::size_t>(12, 1)}) {
        std::vector<float> pixels(12 * floats);
        std::size_t first = 0;
        for (const std::size_t part : parts) {
          load_images(*dataset, order, 1, static_cast<std::int64_t>(first),
                      std::span(pixels).subspan(first * floats, part * floats), {}, how);
          first += part;
        }
        EXPECT_EQ(pixels, one) << parts.size() << " parts";
      }
      std::vector<float> next(12 * floats);
      load_images(*dataset, order, 2, 0, next, {}, how);
      EXPECT_NE(next, one);
    }
  }
}

/// One image in an epoch of one: each step is an epoch.
TEST(Batch, EveryEpochSeesAnotherView) {
  const auto dataset = make_image_dataset({.format = Format::synthetic, .image_size = 8, .num_samples = 1});
  const Order order{.num_samples = 1, .global_batch = 1};
  std::set<std::vector<float>> views;
  for (std::int64_t step = 0; step < 40; ++step) {
    std::vector<float> pixels(8 * 8 * 3);
    load_images(*dataset, order, step, 0, pixels, {}, {.crop = true});
    views.insert(pixels);
  }
  EXPECT_GT(views.size(), 25U);  // of 81
}

TEST(Batch, InputsOrTargetsAloneAreThoseOfBoth) {
  const auto tokens =
      make_token_dataset({.format = Format::synthetic, .sequence_length = 7, .vocabulary = 101, .num_samples = 50});
  const Order order{.num_samples = 50, .global_batch = 6, .seed = 9, .shuffle = true};
  std::vector<std::int32_t> input(42);
  std::vector<std::int32_t> target(42);
  std::vector<std::int32_t> input_alone(42);
  std::vector<std::int32_t> target_alone(42);
  load_tokens(*tokens, order, 1, 0, input, target);
  load_tokens(*tokens, order, 1, 0, input_alone, {});
  load_tokens(*tokens, order, 1, 0, {}, target_alone);
  EXPECT_EQ(input_alone, input);
  EXPECT_EQ(target_alone, target);

  const auto images =
      make_image_dataset({.format = Format::synthetic, .image_size = 5, .num_classes = 4, .num_samples = 50});
  std::vector<float> pixels(6 * 75);
  std::vector<float> pixels_alone(6 * 75);
  std::vector<std::int32_t> labels(6);
  std::vector<std::int32_t> labels_alone(6);
  load_images(*images, order, 1, 0, pixels, labels);
  load_images(*images, order, 1, 0, pixels_alone, {});
  load_images(*images, order, 1, 0, {}, labels_alone);
  EXPECT_EQ(pixels_alone, pixels);
  EXPECT_EQ(labels_alone, labels);
}

TEST(Batch, RefusesAnotherDatasetsOrderAndPartialRows) {
  const auto dataset =
      make_token_dataset({.format = Format::synthetic, .sequence_length = 4, .vocabulary = 11, .num_samples = 50});
  std::vector<std::int32_t> input(8);
  std::vector<std::int32_t> target(8);
  EXPECT_THROW(load_tokens(*dataset, {.num_samples = 49, .global_batch = 4}, 0, 0, input, target), InternalError);
  const Order order{.num_samples = 50, .global_batch = 4};
  EXPECT_THROW(load_tokens(*dataset, order, 0, 3, input, target), InternalError);  // position 4 of 4
  EXPECT_THROW(load_tokens(*dataset, order, 0, 0, std::span(input).first(7), std::span(target).first(7)),
               InternalError);
}

}  // namespace
}  // namespace strata::data::test_batch
