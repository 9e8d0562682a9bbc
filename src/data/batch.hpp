#pragma once

/// @file
/// One rank's part of one step's global batch, gathered from a dataset through the order.

#include <cstdint>
#include <span>

#include "data/dataset.hpp"
#include "data/order.hpp"

namespace strata::data {

/// Fills `input` and `target`, each [num_positions, sequence_length] row-major, with the samples at global positions
/// first_position, first_position + 1, … of `step`; num_positions is the spans' size over the sequence length.
/// Either span may be empty: not wanted.
/// @throws UserError as TokenDataset::tokens does.
void load_tokens(const TokenDataset& dataset, const Order& order, std::int64_t step, std::int64_t first_position,
                 std::span<std::int32_t> input, std::span<std::int32_t> target);

/// Fills `pixels` [num_positions, size, size, 3] and `labels` [num_positions] likewise; either may be empty. Each image
/// is varied by its place in the order.
/// @throws UserError as ImageDataset::view does.
void load_images(const ImageDataset& dataset, const Order& order, std::int64_t step, std::int64_t first_position,
                 std::span<float> pixels, std::span<std::int32_t> labels, const Augmentation& augmentation = {});

}  // namespace strata::data
