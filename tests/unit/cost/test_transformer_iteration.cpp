/// @file
/// The closed form part by part: with all else negligible, each part is the number that its formula says.

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.hpp"
#include "cost/transformer_iteration.hpp"
#include "unit/cost/sample_transformer_costs.hpp"

namespace strata {
namespace {

constexpr double exact = 1e-9;  ///< relative: what is negligible and rounding

void expect_near(double found, double wanted) { EXPECT_NEAR(found, wanted, exact * wanted); }

double seconds(const TransformerRun& run, const Cluster& cluster) {
  return transformer_iteration(run, cluster).seconds;
}

TEST(TransformerIteration, ProductsAreThreePassesOver24Mh2) {
  Cluster cluster = weightless_cluster();
  cluster.peak_flops_per_second["f16"] = 1e6;
  cluster.transformer_costs->product_share = 0.5;
  cluster.transformer_costs->attention_share = 1.0;
  TransformerRun run = small_run();
  const double M = 4 * 128;  // NOLINT(readability-identifier-naming): tokens of a micro-batch
  const double products = 24.0 * M * 256 * 256 / 0.5e6;
  const double attention = 4.0 * 4 * 8 * 128 * 128 * 32 / 1e6;
  expect_near(transformer_iteration(run, cluster).layer_seconds, 3.0 * products + 3.0 * attention);
  // What is recomputed costs its forward pass once more.
  run.recomputation = Recomputation::selective;
  expect_near(transformer_iteration(run, cluster).layer_seconds, 3.0 * products + 4.0 * attention);
  run.recomputation = Recomputation::full;
  expect_near(transformer_iteration(run, cluster).layer_seconds, 4.0 * products + 4.0 * attention);
  run.recomputation = Recomputation::none;
  run.tensor = 2;
  expect_near(transformer_iteration(run, cluster).layer_seconds, (3.0 * products + 3.0 * attention) / 2.0);
}

TEST(TransformerIteration, AShortDepthSlowsEachOfThreeProducts) {
  Cluster cluster = weightless_cluster();
  cluster.peak_flops_per_second["f16"] = 1e6;
  const TransformerRun run = small_run();
  EXPECT_GT(transformer_iteration(run, cluster).head_seconds, 0.0);
  const double layer = transformer_iteration(run, cluster).layer_seconds;
  cluster.transformer_costs->half_depth = 128.0;
  // Products of M = 512 rows; each weighs as its FLOPs, 3 : 1 : 4 : 4. The gradients' depths are the columns and the
  // rows.
  const double attention = 3.0 * 4.0 * 4 * 8 * 128 * 128 * 32 / 1e6;
  const auto slowed = [](double n, double k) { return 3.0 + 128 / k + 128 / n + 128.0 / 512; };
  const double factor =
      (3 * slowed(768, 256) + slowed(256, 256) + 4 * slowed(1024, 256) + 4 * slowed(256, 1024)) / 36.0;
  expect_near(transformer_iteration(run, cluster).layer_seconds, (layer - attention) * factor + attention);
}

TEST(TransformerIteration, ProductsAreComputedInWavesOfTilesOfWhichTheCheaperCount) {
  Cluster cluster = weightless_cluster();
  cluster.peak_flops_per_second["f16"] = 1.0;
  TransformerCosts& costs = *cluster.transformer_costs;
  costs.attention_share = 1.0;
  TransformerRun run = small_run();
  run.hidden_size = 128;
  run.attention_heads = 4;
  run.micro_batch = 3;
  run.global_batch = 48;  // M = 384 rows
  const double attention = 3.0 * 4.0 * 3 * 4 * 128 * 128 * 32;
  const auto seconds_of_products = [&] { return transformer_iteration(run, cluster).layer_seconds - attention; };
  // One multiprocessor, tiles of 128 x 128: all of them are full.
  const double full = 3.0 * 24 * 384 * 128 * 128;
  expect_near(seconds_of_products(), full);
  // Five multiprocessors. Elements in units of 128 x 128, rounded up to waves of five tiles, times the depth in units
  // of 128; of each product the output, the input's gradient and the weight's: (3 x 3, 3 x 1, 3 x 1) of QKV and so on.
  costs.multiprocessors = 5;
  const double unit = 2.0 * 128 * 128 * 128;
  const double small =
      (10 * 1 + 5 * 3 + 5 * 3) + (5 * 1 + 5 * 1 + 5 * 3) + (15 * 1 + 5 * 4 + 5 * 3) + (5 * 4 + 15 * 1 + 5 * 3);
  expect_near(seconds_of_products(), unit * small);
  // Small tiles at half the rate: the large ones, half of each idle where the output is one tile wide, cost as much,
  // and less of 3 x 4.
  costs.small_tile_share = 0.5;
  const double large =
      (20 * 1 + 10 * 3 + 10 * 3) + (10 * 1 + 10 * 1 + 10 * 3) + (20 * 1 + 10 * 4 + 10 * 3) + (10 * 4 + 20 * 1 + 10 * 3);
  expect_near(seconds_of_products(), unit * large);
}

TEST(TransformerIteration, BytesGoAtTheShareOfTheMemoryBandwidth) {
  Cluster cluster = weightless_cluster();
  cluster.memory_bandwidth_bytes_per_second = 1e6;
  cluster.transformer_costs->memory_share = 0.5;
  cluster.transformer_costs->replicated_bytes = 10.0;
  cluster.transformer_costs->sharded_bytes = 24.0;
  cluster.transformer_costs->score_bytes = 5.0;
  TransformerRun run = small_run();
  run.tensor = 4;
  const double elements = 4.0 * 128 * 256;
  const double scores = 4.0 * 8 / 4 * 128 * 128;
  const double rate = 0.5e6;
  expect_near(transformer_iteration(run, cluster).layer_seconds,
              3.0 * (10.0 * elements + 24.0 * elements / 4 + 5.0 * scores) / rate);
  run.sequence_parallel = true;
  expect_near(transformer_iteration(run, cluster).layer_seconds,
              3.0 * (10.0 * elements / 4 + 24.0 * elements / 4 + 5.0 * scores) / rate);
}

TEST(TransformerIteration, TensorGroupsReduceFourTimesALayerSixWithRecomputation) {
  Cluster cluster = weightless_cluster();
  TransformerCosts& costs = *cluster.transformer_costs;
  costs.tensor_latency_seconds = 1.0;
  costs.tensor_bandwidth_bytes_per_second = 1e6;
  costs.node_bandwidth_bytes_per_second = 1e3;
  TransformerRun run = small_run();
  expect_near(1.0 + transformer_iteration(run, cluster).layer_seconds, 1.0);  // alone: nothing
  run.tensor = 4;
  const double bytes = 2.0 * 4 * 128 * 256;
  expect_near(transformer_iteration(run, cluster).layer_seconds, 4.0 * (1.0 + bytes * 2.0 * 3.0 / 4.0 / 1e6));
  run.recomputation = Recomputation::full;
  expect_near(transformer_iteration(run, cluster).layer_seconds, 6.0 * (1.0 + bytes * 2.0 * 3.0 / 4.0 / 1e6));
  run.tensor = 8;
  expect_near(transformer_iteration(run, cluster).layer_seconds, 6.0 * (1.0 + bytes * 2.0 * 7.0 / 8.0 / 1e6));
  cluster.devices_per_node = 4;  // the group now spans nodes
  expect_near(transformer_iteration(run, cluster).layer_seconds, 6.0 * (1.0 + bytes * 2.0 * 7.0 / 8.0 / 1e3));
}

TEST(TransformerIteration, HostAndDeviceOverlapByTheExponent) {
  Cluster cluster = weightless_cluster();
  TransformerCosts& costs = *cluster.transformer_costs;
  costs.launch_seconds = 3.0;
  TransformerRun run = small_run();
  expect_near(transformer_iteration(run, cluster).layer_seconds, 3.0);
  // A device of 4 seconds beside it, by bytes.
  cluster.memory_bandwidth_bytes_per_second = 1.0;
  costs.sharded_bytes = 4.0 / (3.0 * 4 * 128 * 256);
  expect_near(transformer_iteration(run, cluster).layer_seconds, 5.0);  // sqrt(9 + 16)
  costs.launch_overlap_exponent = 1.0;                                  // no overlap
  expect_near(transformer_iteration(run, cluster).layer_seconds, 7.0);
  costs.launch_overlap_exponent = 1000.0;  // perfect, and no power of it overflows
  EXPECT_NEAR(transformer_iteration(run, cluster).layer_seconds, 4.0, 1e-3);
}

TEST(TransformerIteration, TheHostLaunchesMoreWithTensorParallelismAndUnfusedSoftmax) {
  Cluster cluster = weightless_cluster();
  TransformerCosts& costs = *cluster.transformer_costs;
  costs.launch_seconds = 1.0;
  costs.tensor_launch_seconds = 2.0;
  costs.full_node_launch_factor = 1.5;
  costs.unfused_softmax_seconds = 10.0;
  TransformerRun run = small_run();
  const auto layer = [&] { return transformer_iteration(run, cluster).layer_seconds; };
  expect_near(layer(), 1.0);
  run.tensor = 4;
  expect_near(layer(), 2.0);
  run.tensor = 8;
  expect_near(layer(), 2.0 * 1.5);
  run.micro_batch = 2;  // 2 matrices a rank: not four
  expect_near(layer(), 2.0 * 1.5 + 10.0);
  run.recomputation = Recomputation::full;
  expect_near(layer(), 4.0 / 3.0 * (2.0 * 1.5 + 10.0));
}

TEST(TransformerIteration, PipelinesFillAndDrain) {
  Cluster cluster = weightless_cluster();
  cluster.transformer_costs->launch_seconds = 1.0;
  TransformerRun run = small_run();  // 16 micro-batches, 12 layers
  expect_near(seconds(run, cluster), 16.0 * 12.0);
  run.pipeline = 4;
  expect_near(seconds(run, cluster), (16.0 + 3.0) * 3.0);
  run.virtual_stages = 3;
  expect_near(seconds(run, cluster), (16.0 + 3.0 / 3.0) * 3.0);
  run.data = 2;
  expect_near(seconds(run, cluster), (8.0 + 1.0) * 3.0);
  // Every piece of a stage is sent.
  cluster.transformer_costs->launch_seconds = 1e-30;
  cluster.transformer_costs->tensor_bandwidth_bytes_per_second = 4.0 * 4 * 128 * 256;
  expect_near(seconds(run, cluster), 9.0 * 3.0);
  // The two ranks of a stage share the node's way out.
  cluster.devices_per_node = 2;
  cluster.transformer_costs->node_bandwidth_bytes_per_second = 2.0 * 4.0 * 4 * 128 * 256;
  expect_near(seconds(run, cluster), 9.0 * 3.0);
  cluster.transformer_costs->node_bandwidth_bytes_per_second = 1e30;
  cluster.transformer_costs->slot_seconds = 2.0;
  expect_near(seconds(run, cluster), 9.0 * 2.0);
}

TEST(TransformerIteration, HeadReductionAndUpdateAreOnceAMicroBatchOrOnceAStep) {
  Cluster cluster = weightless_cluster();
  TransformerCosts& costs = *cluster.transformer_costs;
  TransformerRun run = small_run();
  run.tensor = 2;
  run.data = 4;
  run.pipeline = 2;  // 16 ranks: two nodes; 4 micro-batches
  const double weights = (12.0 * 256 * 256 * 12 / 2 + 512.0 * 256) / 2;

  costs.reduce_seconds = 1.0;
  costs.reduce_bandwidth_bytes_per_second = 1e9;
  costs.node_bandwidth_bytes_per_second = 1e6;
  // A stage's eight ranks fill a node: its replicas meet there.
  expect_near(transformer_iteration(run, cluster).reduce_seconds, 1.0 + 2.0 * weights * 2.0 * 3.0 / 4.0 / 1e9);
  // Over two nodes, the groups of both tensor shards share what leaves them.
  cluster.devices_per_node = 4;
  expect_near(transformer_iteration(run, cluster).reduce_seconds, 1.0 + 2.0 * weights * 2.0 * 3.0 / 4.0 / 0.5e6);
  // Never faster than inside a node.
  costs.node_bandwidth_bytes_per_second = 1e30;
  expect_near(transformer_iteration(run, cluster).reduce_seconds, 1.0 + 2.0 * weights * 2.0 * 3.0 / 4.0 / 1e9);
  expect_near(seconds(run, cluster), 1.0 + 2.0 * weights * 2.0 * 3.0 / 4.0 / 1e9);
  run.data = 1;
  run.global_batch = 16;  // 4 micro-batches still
  EXPECT_EQ(transformer_iteration(run, cluster).reduce_seconds, 0.0);

  cluster.memory_bandwidth_bytes_per_second = 1e6;
  costs.memory_share = 0.5;
  costs.update_bytes = 20.0;
  costs.step_seconds = 7.0;
  expect_near(transformer_iteration(run, cluster).update_seconds, 7.0 + 20.0 * weights / 0.5e6);

  cluster.peak_flops_per_second["f16"] = 1e6;
  costs.head_share = 0.25;
  costs.unsharded_head_share = 0.5;
  costs.logit_bytes = 8.0;
  const double logits = 4.0 * 128 * 512;
  expect_near(transformer_iteration(run, cluster).head_seconds,
              4.0 * (6.0 * logits / 2 * 256 / 0.25e6 + 8.0 * logits / 2 / 0.5e6));
  run.tensor = 1;
  expect_near(transformer_iteration(run, cluster).head_seconds,
              4.0 * (6.0 * logits * 256 / 0.5e6 + 8.0 * logits / 0.5e6));
}

TEST(TransformerIteration, MeasuredRatiosApplyToTheirShapeAndSayHow) {
  Cluster cluster = weightless_cluster();
  TransformerCosts& costs = *cluster.transformer_costs;
  costs.launch_seconds = 1.0;
  costs.layers = {{256, 8, 128, 1, 2, 0.5}, {256, 8, 128, 1, 8, 2.0}, {256, 8, 256, 1, 4, 7.0}};
  TransformerRun run = small_run();
  const auto at = [&](std::int64_t micro_batch) {
    run.micro_batch = micro_batch;
    return transformer_iteration(run, cluster);
  };
  expect_near(at(2).layer_seconds, 0.5);
  EXPECT_EQ(at(2).basis, Basis::measured);
  expect_near(at(4).layer_seconds, 1.0);  // half way in log b, between 1/2 and 2
  EXPECT_EQ(at(4).basis, Basis::interpolated);
  expect_near(at(8).layer_seconds, 2.0);
  EXPECT_EQ(at(8).basis, Basis::measured);
  expect_near(at(16).layer_seconds, 2.0);
  EXPECT_EQ(at(16).basis, Basis::extrapolated);
  expect_near(at(1).layer_seconds, 0.5);
  EXPECT_EQ(at(1).basis, Basis::extrapolated);
  run.attention_heads = 4;
  expect_near(at(2).layer_seconds, 1.0);  // another shape: the formula alone
  EXPECT_EQ(at(2).basis, Basis::formula);
}

TEST(TransformerIteration, NeedsFittedCosts) {
  Cluster cluster = weightless_cluster();
  cluster.memory_bandwidth_bytes_per_second = 0.0;
  EXPECT_THROW(transformer_iteration(small_run(), cluster), UserError);
  cluster.transformer_costs.reset();
  EXPECT_THROW(transformer_iteration(small_run(), cluster), UserError);
}

/// One row of the published examples: Korthikanti et al. 2022, tables 2 and 3.
struct Published {
  TransformerRun run;
  double gib_without;  ///< figure 1: tensor parallelism alone
  double gib_with;     ///< figure 1: sequence parallelism and selective recomputation
};

std::vector<Published> published() {
  const auto run = [](std::int64_t h, std::int64_t a, std::int64_t layers, std::int64_t b, std::int64_t p,
                      std::int64_t v) {
    return TransformerRun{.hidden_size = h,
                          .attention_heads = a,
                          .layers = layers,
                          .sequence_length = 2048,
                          .vocabulary_size = 51200,
                          .global_batch = p * b,
                          .micro_batch = b,
                          .tensor = 8,
                          .pipeline = p,
                          .virtual_stages = v};
  };
  return {{run(6144, 64, 48, 4, 1, 1), 59.25, 9.5625},
          {run(12288, 96, 96, 1, 8, 3), 66.84375, 12.3515625},
          {run(20480, 128, 105, 1, 35, 3), 114.0234375, 23.076171875},
          {run(25600, 160, 128, 1, 64, 1), 131.25, 26.5625}};
}

TEST(Activations, OfOneLayerAreTable2) {
  TransformerRun run = published()[0].run;
  const double sbh = 2048.0 * 4 * 6144;
  const double core = 5.0 * 64 * 2048 / 6144;  // 5as/h
  const auto bytes = [&](std::int64_t tensor, bool sequence_parallel, Recomputation recomputation) {
    run.tensor = tensor;
    run.sequence_parallel = sequence_parallel;
    run.recomputation = recomputation;
    return layer_activation_bytes(run) / sbh;
  };
  EXPECT_DOUBLE_EQ(bytes(1, false, Recomputation::none), 34 + core);
  EXPECT_DOUBLE_EQ(bytes(8, false, Recomputation::none), 10 + 24.0 / 8 + core / 8);
  EXPECT_DOUBLE_EQ(bytes(8, true, Recomputation::none), 34.0 / 8 + core / 8);
  EXPECT_DOUBLE_EQ(bytes(8, false, Recomputation::selective), 10 + 24.0 / 8);
  EXPECT_DOUBLE_EQ(bytes(8, true, Recomputation::selective), 34.0 / 8);
  EXPECT_DOUBLE_EQ(bytes(8, false, Recomputation::full), 2.0);
}

TEST(Activations, OfTheFirstStageAreFigure1) {
  for (auto [run, without, with] : published()) {
    SCOPED_TRACE(run.hidden_size);
    constexpr double gib = 1 << 30;
    EXPECT_DOUBLE_EQ(first_stage_activation_bytes(run) / gib, without);
    run.sequence_parallel = true;
    run.recomputation = Recomputation::selective;
    EXPECT_DOUBLE_EQ(first_stage_activation_bytes(run) / gib, with);
  }
}

}  // namespace
}  // namespace strata
