/// @file
/// Tiles of 4 x 4 outputs are taken in chunks: a thread transforms its chunk's 6 x 6 inputs, multiplies them at each of
/// the 36 points with the transformed weights, and transforms the products back. Gradients of weights are sums over
/// tiles: there all threads transform one chunk, then each adds the chunk's products of its part of the channels, so
/// that no number of threads changes a bit.

#include "exec/cpu/kernels/winograd.hpp"

#include <omp.h>

#include <algorithm>

#include "base/ceil_div.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"
#include "exec/cpu/kernels/lane_transpose.hpp"
#include "exec/cpu/kernels/storage.hpp"
#include "exec/cpu/kernels/winograd_products.hpp"
#include "exec/cpu/kernels/winograd_shape.hpp"
#include "exec/cpu/kernels/winograd_transforms.hpp"

namespace strata::cpu {

namespace winograd {
namespace {

constexpr std::int64_t float_bytes = sizeof(float);

/// Images of which tiles are read or written; [images][height][width][channels].
struct Images {
  std::int64_t height = 0, width = 0, channels = 0;

  std::int64_t num_blocks() const { return filled_up(channels) / block_channels; }
};

/// Where a tile's outputs begin.
struct TilePlace {
  std::int64_t image, row, column;
};

/// All images' tiles of `tile_out` x `tile_out` outputs, in the order of the images.
struct Tiles {
  std::int64_t images, rows, columns;  ///< of tiles

  Tiles(std::int64_t num_images, const Images& outputs)
      : images(num_images), rows(ceil_div(outputs.height, tile_out)), columns(ceil_div(outputs.width, tile_out)) {}
  std::int64_t count() const { return images * rows * columns; }
  TilePlace operator[](std::int64_t tile) const {
    const std::int64_t in_image = tile % (rows * columns);
    return {tile / (rows * columns), in_image / columns * tile_out, in_image % columns * tile_out};
  }
};

/// The lanes of @p block that @p channels has: calls body(lanes), or nothing where it has none.
template <typename Body>
STRATA_LANES void with_lanes(std::int64_t channels, std::int64_t block, Body&& body) {
  const std::int64_t rest = channels - block * block_channels;
  if (rest >= block_channels) {
    body(AllLanes{});
  } else if (rest > 0) {
    body(FirstLanes{static_cast<std::size_t>(rest)});
  }
}

/// size x size values of a block of channels from (row, column) on; 0 outside of the image.
template <std::size_t size, typename Element, typename Lanes>
STRATA_LANES void load_tile(const Images& images, const Element* image, std::int64_t row, std::int64_t column,
                            std::int64_t block, Lanes lanes, F32x16 (&tile)[size][size]) {
  const Element* const origin = image + (row * images.width + column) * images.channels + block * block_channels;
  constexpr auto side = static_cast<std::int64_t>(size);
  const bool is_inside = row >= 0 && column >= 0 && row + side <= images.height && column + side <= images.width;
  for (std::int64_t i = 0; i < side; ++i) {
    for (std::int64_t j = 0; j < side; ++j) {
      const bool is_there =
          is_inside || (row + i >= 0 && row + i < images.height && column + j >= 0 && column + j < images.width);
      tile[i][j] = is_there ? load(origin + (i * images.width + j) * images.channels, lanes) : F32x16{};
    }
  }
}

/// @p transformed at all points, `step` floats apart.
STRATA_LANES void store_points(const F32x16 (&transformed)[points][points], float* to, std::int64_t step) {
  for (int i = 0; i < points; ++i) {
    for (int j = 0; j < points; ++j) store(to + (i * points + j) * step, transformed[i][j]);
  }
}

/// Tiles that are transformed, multiplied and transformed back together.
struct Chunk {
  std::int64_t first;     ///< tile
  std::int64_t count;     ///< of tiles that there are
  std::int64_t capacity;  ///< a multiple of tile_multiple; those beyond `count` are zeros
};

/// A tile at all points, to [point][block][capacity][16]; zeros where the chunk has no such tile.
/// @param transform (image, place, block, lanes, F32x16[6][6]): of one block of channels.
template <typename Element, typename Transform>
STRATA_LANES void transform_tile(const Images& images, const Element* from, const Tiles& tiles, const Chunk& chunk,
                                 std::int64_t tile, float* to, Transform&& transform) {
  const std::int64_t step = images.num_blocks() * chunk.capacity * block_channels;
  const bool is_there = tile < chunk.count;
  const TilePlace place = tiles[is_there ? chunk.first + tile : chunk.first];
  const Element* const image = from + place.image * images.height * images.width * images.channels;
  for (std::int64_t block = 0; block < images.num_blocks(); ++block) {
    F32x16 transformed[points][points] = {};
    if (is_there) {
      with_lanes(images.channels, block, [&](auto lanes) { transform(image, place, block, lanes, transformed); });
    }
    store_points(transformed, to + (block * chunk.capacity + tile) * block_channels, step);
  }
}

/// A tile of inputs, from `padding` above and left of its outputs.
template <typename Element>
void transform_input_tile(const Images& images, const Element* x, std::int64_t padding, const Tiles& tiles,
                          const Chunk& chunk, std::int64_t tile, float* v) {
  transform_tile(images, x, tiles, chunk, tile, v,
                 [&](const Element* image, const TilePlace& place, std::int64_t block, auto lanes,
                     F32x16(&values)[points][points]) {
                   load_tile(images, image, place.row - padding, place.column - padding, block, lanes, values);
                   for (int j = 0; j < points; ++j) transform_input(&values[0][j], points, &values[0][j], points);
                   for (int i = 0; i < points; ++i) transform_input(&values[i][0], 1, &values[i][0], 1);
                 });
}

/// A tile of gradients of outputs as a kernel of 4 x 4.
template <typename Element>
void transform_gradient_tile(const Images& images, const Element* dy, const Tiles& tiles, const Chunk& chunk,
                             std::int64_t tile, float* d) {
  transform_tile(images, dy, tiles, chunk, tile, d,
                 [&](const Element* image, const TilePlace& place, std::int64_t block, auto lanes,
                     F32x16(&transformed)[points][points]) {
                   F32x16 values[tile_out][tile_out];
                   F32x16 half[points][tile_out];
                   load_tile(images, image, place.row, place.column, block, lanes, values);
                   for (int j = 0; j < tile_out; ++j)
                     transform_kernel<4>(&values[0][j], tile_out, &half[0][j], tile_out);
                   for (int i = 0; i < points; ++i) transform_kernel<4>(&half[i][0], 1, &transformed[i][0], 1);
                 });
}

/// @param m [point][block][capacity][16]; @param bias null or [channels].
template <typename Element>
void transform_output_tile(const Images& images, const float* m, const Element* bias, bool relu, const Tiles& tiles,
                           const Chunk& chunk, std::int64_t tile, Element* y) {
  const std::int64_t step = images.num_blocks() * chunk.capacity * block_channels;
  const TilePlace place = tiles[chunk.first + tile];
  const std::int64_t rows = std::min<std::int64_t>(tile_out, images.height - place.row);
  const std::int64_t columns = std::min<std::int64_t>(tile_out, images.width - place.column);
  Element* const origin =
      y + ((place.image * images.height + place.row) * images.width + place.column) * images.channels;
  for (std::int64_t block = 0; block < images.num_blocks(); ++block) {
    with_lanes(images.channels, block, [&](auto lanes) {
      const float* const from = m + (block * chunk.capacity + tile) * block_channels;
      F32x16 half[tile_out][points];
      for (int j = 0; j < points; ++j) {
        F32x16 column[points];
        for (int i = 0; i < points; ++i) column[i] = load(from + (i * points + j) * step);
        transform_output<4>(column, 1, &half[0][j], points);
      }
      const F32x16 added = bias != nullptr ? load(bias + block * block_channels, lanes) : F32x16{};
      for (int i = 0; i < rows; ++i) {
        F32x16 row[tile_out];
        transform_output<4>(&half[i][0], 1, row, 1);
        for (int j = 0; j < columns; ++j) {
          const F32x16 sum = row[j] + added;
          store(origin + (i * images.width + j) * images.channels + block * block_channels,
                relu ? maximum(sum, F32x16{}) : sum, lanes);
        }
      }
    });
  }
}

/// 3 x 3 weights of one output channel and a block of input channels, at all points.
template <typename Element, typename Lanes>
STRATA_LANES void transform_weight(const Element* weight, std::int64_t in, bool turned, Lanes lanes,
                                   F32x16 (&to)[points][points]) {
  F32x16 values[3][3];
  F32x16 half[points][3];
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) values[i][j] = load(weight + (turned ? 8 - i * 3 - j : i * 3 + j) * in, lanes);
  }
  for (int j = 0; j < 3; ++j) transform_kernel<3>(&values[0][j], 3, &half[0][j], 3);
  for (int i = 0; i < points; ++i) transform_kernel<3>(&half[i][0], 1, &to[i][0], 1);
}

/// The weights at all points, for outputs: [point][panel of out][filled_up(in)][32].
template <typename Element>
void transform_weights_forward(const ConvolutionDims& dims, const Element* weight, float* u) {
  const std::int64_t rows = filled_up(dims.in), columns = filled_up(dims.out);
#pragma omp for collapse(2) schedule(static)
  for (std::int64_t out = 0; out < columns; out += block_channels) {
    for (std::int64_t in = 0; in < rows; in += block_channels) {
      U32x16 lines[tile_points][block_channels] = {};
      for (std::int64_t o = 0; o < std::min<std::int64_t>(block_channels, dims.out - out); ++o) {
        with_lanes(dims.in, in / block_channels, [&](auto lanes) {
          F32x16 transformed[points][points];
          transform_weight(weight + (out + o) * 9 * dims.in + in, dims.in, false, lanes, transformed);
          for (int p = 0; p < tile_points; ++p) {
            lines[p][o] = std::bit_cast<U32x16>(transformed[p / points][p % points]);
          }
        });
      }
      for (int p = 0; p < tile_points; ++p) {
        transpose_words(lines[p]);
        float* const to = u + (p * columns + out / panel_channels * panel_channels) * rows + in * panel_channels +
                          out % panel_channels;
        for (int i = 0; i < block_channels; ++i) store(to + i * panel_channels, std::bit_cast<F32x16>(lines[p][i]));
      }
    }
  }
}

/// The weights turned by half a circle at all points, for gradients of inputs: [point][panel of
/// in][filled_up(out)][32].
template <typename Element>
void transform_weights_backward(const ConvolutionDims& dims, const Element* weight, float* u) {
  const std::int64_t rows = filled_up(dims.out), columns = filled_up(dims.in);
#pragma omp for schedule(static)
  for (std::int64_t out = 0; out < rows; ++out) {
    for (std::int64_t in = 0; in < columns; in += block_channels) {
      F32x16 transformed[points][points] = {};
      if (out < dims.out) {
        with_lanes(dims.in, in / block_channels, [&](auto lanes) {
          transform_weight(weight + out * 9 * dims.in + in, dims.in, true, lanes, transformed);
        });
      }
      store_points(transformed,
                   u + in / panel_channels * panel_channels * rows + out * panel_channels + in % panel_channels,
                   rows * columns);
    }
  }
}

/// Of @p wanted tiles, no more than there are, and whole blocks of products.
std::int64_t chunk_tiles(std::int64_t wanted, std::int64_t num_tiles) {
  return ceil_div(std::clamp<std::int64_t>(wanted, 1, num_tiles), tile_multiple) * tile_multiple;
}

/// A convolution of stride 1 as products at points: forward of x, backward of dy.
struct PointProducts {
  Images from, to;
  std::int64_t padding = 0;
  Tiles tiles;
  std::int64_t chunk;  ///< tiles that a thread takes at a time

  PointProducts(std::int64_t images, const Images& read, const Images& written, std::int64_t zeros)
      : from(read), to(written), padding(zeros), tiles(images, written) {
    // The transforms of a chunk are to stay in a second-level cache. Of many channels it takes more tiles all the same:
    // the weights at all points, which no such cache holds, are read again for each chunk.
    constexpr std::int64_t cached_bytes = std::int64_t{1} << 19, least_tiles = 24;
    const std::int64_t tile_bytes = tile_points * (filled_up(from.channels) + filled_up(to.channels)) * float_bytes;
    chunk = chunk_tiles(std::max(cached_bytes / tile_bytes, least_tiles),
                        ceil_div(tiles.count(), std::int64_t{kernel_threads()}));
  }

  std::int64_t weight_floats() const { return tile_points * filled_up(from.channels) * filled_up(to.channels); }
  std::int64_t input_floats() const { return tile_points * chunk * filled_up(from.channels); }
  std::int64_t output_floats() const { return tile_points * chunk * filled_up(to.channels); }
  std::int64_t workspace_bytes() const {
    return (weight_floats() + kernel_threads() * (input_floats() + output_floats())) * float_bytes;
  }
};

PointProducts forward_products(const ConvolutionDims& d) {
  return {d.images, {d.height, d.width, d.in}, {d.out_height(), d.out_width(), d.out}, d.padding};
}

PointProducts backward_products(const ConvolutionDims& d) {
  return {d.images, {d.out_height(), d.out_width(), d.out}, {d.height, d.width, d.in}, 2 - d.padding};
}

/// Calls @p transform_weights(u), then makes the outputs of all tiles.
template <typename Element, typename TransformWeights>
void convolve(const PointProducts& p, const Element* x, const Element* bias, bool relu, Element* y,
              std::span<std::byte> workspace, std::string_view name, TransformWeights&& transform_weights) {
  require_workspace(workspace, p.workspace_bytes(), name);
  auto* const u = reinterpret_cast<float*>(workspace.data());
  const std::int64_t rows = filled_up(p.from.channels), columns = filled_up(p.to.channels);
  const std::int64_t num_chunks = ceil_div(p.tiles.count(), p.chunk);
#pragma omp parallel num_threads(kernel_threads())
  {
    transform_weights(u);
    float* const v = u + p.weight_floats() + omp_get_thread_num() * (p.input_floats() + p.output_floats());
    float* const m = v + p.input_floats();
#pragma omp for schedule(static)
    for (std::int64_t c = 0; c < num_chunks; ++c) {
      const std::int64_t first = c * p.chunk;
      const std::int64_t count = std::min(p.chunk, p.tiles.count() - first);
      const Chunk chunk{first, count, ceil_div(count, tile_multiple) * tile_multiple};
      for (std::int64_t t = 0; t < chunk.capacity; ++t) {
        transform_input_tile(p.from, x, p.padding, p.tiles, chunk, t, v);
      }
      for (std::int64_t point = 0; point < tile_points; ++point) {
        for (std::int64_t panel = 0; panel < columns; panel += panel_channels) {
          for (std::int64_t t = 0; t < chunk.capacity; t += tile_multiple) {
            multiply_channels(v + point * rows * chunk.capacity + t * block_channels,
                              u + (point * columns + panel) * rows, rows / block_channels, chunk.capacity,
                              m + (point * columns + panel) * chunk.capacity + t * block_channels);
          }
        }
      }
      for (std::int64_t t = 0; t < count; ++t) transform_output_tile(p.to, m, bias, relu, p.tiles, chunk, t, y);
    }
  }
}

/// The gradient of weights as products at points.
struct WeightProducts {
  Images x, dy;
  Tiles tiles;
  std::int64_t chunk;  ///< tiles that all threads take at a time

  explicit WeightProducts(const ConvolutionDims& d)
      : x{d.height, d.width, d.in}, dy{d.out_height(), d.out_width(), d.out}, tiles(d.images, dy) {
    // As for PointProducts, of a cache that threads share; of many channels more, since sums at all points are read and
    // written for each chunk.
    constexpr std::int64_t cached_bytes = std::int64_t{1} << 22, least_tiles = 96;
    const std::int64_t tile_bytes = tile_points * (filled_up(x.channels) + filled_up(dy.channels)) * float_bytes;
    chunk = chunk_tiles(std::max(cached_bytes / tile_bytes, least_tiles), tiles.count());
  }

  std::int64_t sum_floats() const { return tile_points * filled_up(x.channels) * filled_up(dy.channels); }
  std::int64_t x_floats() const { return tile_points * chunk * filled_up(x.channels); }
  std::int64_t dy_floats() const { return tile_points * chunk * filled_up(dy.channels); }
  std::int64_t workspace_bytes() const { return (sum_floats() + x_floats() + dy_floats()) * float_bytes; }
};

/// Sums [point][block of out][panel of in][16][32] to weights [out][3][3][in].
template <typename Gradient>
void transform_sums(const ConvolutionDims& dims, const float* sums, Gradient* dweight, bool accumulate) {
  const std::int64_t blocks = filled_up(dims.out) / block_channels, panels = filled_up(dims.in) / panel_channels;
#pragma omp for schedule(static)
  for (std::int64_t out = 0; out < dims.out; ++out) {
    for (std::int64_t in = 0; in < dims.in; in += block_channels) {
      with_lanes(dims.in, in / block_channels, [&](auto lanes) {
        const float* const from =
            sums +
            ((out / block_channels * panels + in / panel_channels) * block_channels + out % block_channels) *
                panel_channels +
            in % panel_channels;
        F32x16 half[3][points];
        for (int j = 0; j < points; ++j) {
          F32x16 column[points];
          for (int i = 0; i < points; ++i) {
            column[i] = load(from + (i * points + j) * blocks * panels * block_channels * panel_channels);
          }
          transform_output<3>(column, 1, &half[0][j], points);
        }
        Gradient* const to = dweight + out * 9 * dims.in + in;
        for (int i = 0; i < 3; ++i) {
          F32x16 row[3];
          transform_output<3>(&half[i][0], 1, row, 1);
          for (int j = 0; j < 3; ++j) {
            Gradient* const at = to + (i * 3 + j) * dims.in;
            store(at, accumulate ? row[j] + load(at, lanes) : row[j], lanes);
          }
        }
      });
    }
  }
}

template <typename Element, typename Gradient>
void sum_weight_gradients(const ConvolutionDims& dims, const Element* dy, const Element* x, Gradient* dweight,
                          bool accumulate, std::span<std::byte> workspace) {
  const WeightProducts p(dims);
  require_workspace(workspace, p.workspace_bytes(), "winograd_backward_weight");
  auto* const sums = reinterpret_cast<float*>(workspace.data());
  float* const v = sums + p.sum_floats();
  float* const d = v + p.x_floats();
  const std::int64_t rows = filled_up(dims.out), columns = filled_up(dims.in);
#pragma omp parallel num_threads(kernel_threads())
  {
    for (std::int64_t first = 0; first < p.tiles.count(); first += p.chunk) {
      const std::int64_t count = std::min(p.chunk, p.tiles.count() - first);
      const Chunk chunk{first, count, ceil_div(count, tile_multiple) * tile_multiple};
#pragma omp for schedule(static)
      for (std::int64_t t = 0; t < chunk.capacity; ++t) {
        transform_input_tile(p.x, x, dims.padding, p.tiles, chunk, t, v);
        transform_gradient_tile(p.dy, dy, p.tiles, chunk, t, d);
      }
#pragma omp for collapse(2) schedule(static)
      for (std::int64_t point = 0; point < tile_points; ++point) {
        for (std::int64_t row = 0; row < rows; row += block_channels) {
          for (std::int64_t column = 0; column < columns; column += panel_channels) {
            multiply_tiles(d + (point * rows + row) * chunk.capacity, v + (point * columns + column) * chunk.capacity,
                           chunk.capacity, sums + (point * rows + row) * columns + column * block_channels, first > 0);
          }
        }
      }
    }
    transform_sums(dims, sums, dweight, accumulate);
  }
}

}  // namespace
}  // namespace winograd

std::int64_t winograd_forward_workspace_bytes(const ConvolutionDims& dims) {
  return winograd::forward_products(dims).workspace_bytes();
}

std::int64_t winograd_backward_input_workspace_bytes(const ConvolutionDims& dims) {
  return winograd::backward_products(dims).workspace_bytes();
}

std::int64_t winograd_backward_weight_workspace_bytes(const ConvolutionDims& dims) {
  return winograd::WeightProducts(dims).workspace_bytes();
}

void winograd_forward(const ConvolutionDims& dims, const void* x, const void* weight, const void* bias, void* y,
                      std::span<std::byte> workspace) {
  with_storage(dims.dtype, [&]<typename Element>() {
    winograd::convolve(
        winograd::forward_products(dims), static_cast<const Element*>(x), static_cast<const Element*>(bias), dims.relu,
        static_cast<Element*>(y), workspace, "winograd_forward",
        [&](float* u) { winograd::transform_weights_forward(dims, static_cast<const Element*>(weight), u); });
  });
}

void winograd_backward_input(const ConvolutionDims& dims, const void* dy, const void* weight, void* dx,
                             std::span<std::byte> workspace) {
  with_storage(dims.dtype, [&]<typename Element>() {
    constexpr const Element* no_bias = nullptr;
    winograd::convolve(winograd::backward_products(dims), static_cast<const Element*>(dy), no_bias, false,
                       static_cast<Element*>(dx), workspace, "winograd_backward_input", [&](float* u) {
                         winograd::transform_weights_backward(dims, static_cast<const Element*>(weight), u);
                       });
  });
}

void winograd_backward_weight(const ConvolutionDims& dims, const void* dy, const void* x, void* dweight,
                              bool accumulate, std::span<std::byte> workspace) {
  with_storage(dims.dtype, [&]<typename Element>() {
    with_storage(dims.gradient_dtype, [&]<typename Gradient>() {
      winograd::sum_weight_gradients(dims, static_cast<const Element*>(dy), static_cast<const Element*>(x),
                                     static_cast<Gradient*>(dweight), accumulate, workspace);
    });
  });
}

}  // namespace strata::cpu
