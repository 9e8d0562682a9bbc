#include "cost/transformer_iteration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>

#include "base/error.hpp"
#include "cost/peak_rate.hpp"

namespace strata {
namespace {

constexpr double element_bytes = 2.0;  ///< activations, weights and gradients that are sent: half precision

struct Ratio {
  double value = 1.0;
  Basis basis = Basis::formula;
};

/// The measured micro-batches of one layer shape, ascending.
std::span<const LayerRatio> measured_micro_batches(const std::vector<LayerRatio>& layers, const TransformerRun& run) {
  const auto shape = [](const LayerRatio& layer) {
    return std::tuple(layer.hidden_size, layer.attention_heads, layer.sequence_length, layer.tensor);
  };
  const LayerRatio wanted{run.hidden_size, run.attention_heads, run.sequence_length, run.tensor, 0, 0.0};
  const auto [first, last] =
      std::equal_range(layers.begin(), layers.end(), wanted,
                       [&](const LayerRatio& a, const LayerRatio& b) { return shape(a) < shape(b); });
  return {first, last};
}

/// Linear between neighbours in log b, constant outside.
Ratio layer_ratio(const std::vector<LayerRatio>& layers, const TransformerRun& run) {
  const auto at = measured_micro_batches(layers, run);
  if (at.empty()) return {};
  const auto above =
      std::find_if(at.begin(), at.end(), [&](const LayerRatio& l) { return l.micro_batch >= run.micro_batch; });
  if (above == at.end()) return {at.back().ratio, Basis::extrapolated};
  if (above->micro_batch == run.micro_batch) return {above->ratio, Basis::measured};
  if (above == at.begin()) return {above->ratio, Basis::extrapolated};
  const LayerRatio& below = *(above - 1);
  const auto log_of = [](std::int64_t b) { return std::log(static_cast<double>(b)); };
  const double share =
      (log_of(run.micro_batch) - log_of(below.micro_batch)) / (log_of(above->micro_batch) - log_of(below.micro_batch));
  return {std::exp(std::log(below.ratio) + share * (std::log(above->ratio) - std::log(below.ratio))),
          Basis::interpolated};
}

/// A run's sizes as reals, under the formula's names.
struct Sizes {
  double h, a, L, s, V, b, m, t, d, p, v, M;  // NOLINT(readability-identifier-naming): the formula's symbols
};
Sizes sizes_of(const TransformerRun& run) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  return {real(run.hidden_size),     real(run.attention_heads), real(run.layers),
          real(run.sequence_length), real(run.vocabulary_size), real(run.micro_batch),
          real(run.micro_batches()), real(run.tensor),          real(run.data),
          real(run.pipeline),        real(run.virtual_stages),  real(run.micro_batch * run.sequence_length)};
}

struct Passes {
  double layer;
  double attention;
  double all_reduces;
};
Passes passes_of(Recomputation recomputation) {
  switch (recomputation) {
    case Recomputation::none: return {3.0, 3.0, 4.0};
    case Recomputation::selective: return {3.0, 4.0, 4.0};
    case Recomputation::full: return {4.0, 4.0, 6.0};
  }
  throw InternalError("no such recomputation");
}

/// Of one rank, for what `sharing` ranks of a node send out of it at once.
double node_rate(const Cluster& cluster, std::int64_t sharing) {
  return cluster.transformer_costs->node_bandwidth_bytes_per_second /
         static_cast<double>(std::min<std::int64_t>(sharing, cluster.devices_per_node));
}

/// Matrix products in tiles, whose last wave leaves multiprocessors idle.
class Products {
 public:
  Products(const TransformerCosts& costs, double peak)
      : half_depth_(costs.half_depth),
        small_tile_cost_(small_tile / costs.small_tile_share),
        wave_(static_cast<double>(costs.multiprocessors)),
        element_seconds_(2.0 / (costs.product_share * peak)) {}

  /// rows × columns outputs, each a sum over depth.
  double seconds(double rows, double columns, double depth) const {
    const double row_tiles = std::ceil(rows / tile_side);
    const double large = waves(row_tiles * std::ceil(columns / (2.0 * tile_side))) * large_tile;
    const double small = waves(row_tiles * std::ceil(columns / tile_side)) * small_tile_cost_;
    return element_seconds_ * wave_ * std::min(large, small) * (depth + half_depth_);
  }
  /// Both products of the backward pass: the input's gradient and the weight's, and @p forwards times the forward one.
  double training_seconds(double forwards, double rows, double columns, double depth) const {
    return forwards * seconds(rows, columns, depth) + seconds(rows, depth, columns) + seconds(columns, depth, rows);
  }

 private:
  static constexpr double tile_side = 128.0;
  static constexpr double small_tile = tile_side * tile_side;
  static constexpr double large_tile = 2.0 * small_tile;
  double waves(double tiles) const { return std::ceil(tiles / wave_); }

  double half_depth_, small_tile_cost_, wave_, element_seconds_;
};

/// What a layer occupies its device for, forward and backward.
double device_seconds(const Sizes& r, const Passes& passes, const TransformerRun& run, const Cluster& cluster,
                      double peak) {
  const TransformerCosts& c = *cluster.transformer_costs;
  const Products products_of(c, peak);
  const auto product = [&](double columns, double depth) {
    return products_of.training_seconds(passes.layer - 2.0, r.M, columns, depth);
  };
  const double scores = r.b * r.a / r.t * r.s * r.s;
  const double products = product(3.0 * r.h / r.t, r.h) + product(r.h, r.h / r.t) + product(4.0 * r.h / r.t, r.h) +
                          product(r.h, 4.0 * r.h / r.t) +
                          passes.attention * 4.0 * scores * r.h / r.a / (c.attention_share * peak);
  const double replicated = r.M * r.h / (run.sequence_parallel ? r.t : 1.0);
  const double bytes = passes.layer * (c.replicated_bytes * replicated + c.sharded_bytes * r.M * r.h / r.t) +
                       passes.attention * c.score_bytes * scores;
  double all_reduces = 0.0;
  if (run.tensor > 1) {
    const double bandwidth =
        run.tensor > cluster.devices_per_node ? c.node_bandwidth_bytes_per_second : c.tensor_bandwidth_bytes_per_second;
    all_reduces = passes.all_reduces *
                  (c.tensor_latency_seconds + element_bytes * r.M * r.h * 2.0 * (r.t - 1.0) / r.t / bandwidth);
  }
  return products + bytes / (c.memory_share * cluster.memory_bandwidth_bytes_per_second) + all_reduces;
}

/// What its host takes to launch a layer's kernels, forward and backward.
double host_seconds(const Passes& passes, const TransformerRun& run, const Cluster& cluster) {
  const TransformerCosts& c = *cluster.transformer_costs;
  double seconds = c.launch_seconds;
  if (run.tensor > 1) {
    seconds = c.tensor_launch_seconds * (run.tensor >= cluster.devices_per_node ? c.full_node_launch_factor : 1.0);
  }
  constexpr std::int64_t matrices_a_block = 4;
  const bool is_fused = run.micro_batch * run.attention_heads % (run.tensor * matrices_a_block) == 0;
  return passes.layer / 3.0 * (seconds + (is_fused ? 0.0 : c.unfused_softmax_seconds));
}

}  // namespace

IterationEstimate transformer_iteration(const TransformerRun& run, const Cluster& cluster) {
  if (!cluster.transformer_costs) {
    throw UserError(fmt::format(
        "cluster {}: no [transformer_costs]; nobody has fitted them to measured iterations there", cluster.name));
  }
  require_memory_bandwidth(cluster);
  const TransformerCosts& c = *cluster.transformer_costs;
  const double peak = cluster.peak_flops_per_second.find(c.dtype)->second;
  const double bandwidth = c.memory_share * cluster.memory_bandwidth_bytes_per_second;
  const Sizes r = sizes_of(run);
  const Passes passes = passes_of(run.recomputation);

  // The larger is taken out, so that no power overflows.
  const double device = device_seconds(r, passes, run, cluster, peak);
  const double host = host_seconds(passes, run, cluster);
  const double q = c.launch_overlap_exponent;
  const double larger = std::max(device, host);
  const Ratio ratio = layer_ratio(c.layers, run);

  IterationEstimate estimate;
  estimate.basis = ratio.basis;
  estimate.layer_seconds = ratio.value * larger * std::pow(1.0 + std::pow(std::min(device, host) / larger, q), 1.0 / q);
  const double slots = r.m + (r.p - 1.0) / r.v;
  estimate.layers_seconds = slots * r.L / r.p * estimate.layer_seconds;
  double send = 0.0;
  if (run.pipeline > 1) {
    const double rate = run.num_ranks() > cluster.devices_per_node ? node_rate(cluster, run.tensor * run.data)
                                                                   : c.tensor_bandwidth_bytes_per_second;
    send = 2.0 * element_bytes * r.M * r.h / r.t / rate;
  }
  estimate.slots_seconds = slots * (c.slot_seconds + r.v * send);
  const double logits = r.M * r.V / r.t;
  const double head_share = run.tensor == 1 ? c.unsharded_head_share : c.head_share;
  estimate.head_seconds = r.m * (6.0 * logits * r.h / (head_share * peak) + c.logit_bytes * logits / bandwidth);
  const double weights = (12.0 * r.h * r.h * r.L / r.p + r.V * r.h) / r.t;
  if (run.data > 1) {
    double rate = c.reduce_bandwidth_bytes_per_second;
    if (run.tensor * run.data > cluster.devices_per_node) rate = std::min(rate, node_rate(cluster, run.tensor));
    estimate.reduce_seconds = c.reduce_seconds + element_bytes * weights * 2.0 * (r.d - 1.0) / r.d / rate;
  }
  estimate.update_seconds = c.step_seconds + c.update_bytes * weights / bandwidth;
  estimate.seconds = estimate.layers_seconds + estimate.slots_seconds + estimate.head_seconds +
                     estimate.reduce_seconds + estimate.update_seconds;
  return estimate;
}

double layer_activation_bytes(const TransformerRun& run) {
  const Sizes r = sizes_of(run);
  const double unit = r.M * r.h;  // elements of one b·s·h tensor
  // What stays whole on every rank of a tensor group unless the sequence is split.
  const double whole = run.sequence_parallel ? unit / r.t : unit;
  if (run.recomputation == Recomputation::full) return 2.0 * whole;
  const double sharded = unit / r.t;
  const double layer_norms = 2.0 * 2.0 * whole;          // the inputs of two
  const double product_inputs = 2.0 * 2.0 * whole;       // of the QKV and of the first MLP product
  const double masks = 2.0 * whole;                      // of two dropouts
  const double attention = (2.0 * 3.0 + 2.0) * sharded;  // Q, K, V; the input of the output projection
  const double mlp = (2.0 * 4.0 + 2.0 * 4.0) * sharded;  // the inputs of GELU and of the second product
  const double scores = r.b * r.a / r.t * r.s * r.s;
  const double core =
      run.recomputation == Recomputation::selective ? 0.0 : (2.0 + 1.0 + 2.0) * scores;  // softmax, mask, dropout
  return layer_norms + product_inputs + masks + attention + mlp + core;
}

double first_stage_activation_bytes(const TransformerRun& run) {
  const Sizes r = sizes_of(run);
  const double interleaved = run.virtual_stages > 1 ? 1.0 + (r.p - 1.0) / (r.p * r.v) : 1.0;
  return layer_activation_bytes(run) * r.L * interleaved;
}

}  // namespace strata
