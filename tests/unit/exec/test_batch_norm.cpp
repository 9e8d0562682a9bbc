/// @file
/// Batch normalisation against double, with means far larger than deviations; running statistics; bits independent of
/// threads.

#include <gtest/gtest.h>
#include <omp.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/batch_norm.hpp"
#include "unit/exec/dense_reference.hpp"

namespace strata::cpu::test_batch_norm {
namespace {

using test::random_tensor;
using test::relative_error;
using test::Tensor;
using test::tolerance;
using test::Workspace;

struct Layer {
  BatchNormDims dims;
  Tensor x, gamma, beta, y, dy, dx, dgamma, dbeta;
  std::vector<float> statistics, running_mean, running_variance;

  explicit Layer(const BatchNormDims& d, double offset = 0)
      : dims(d),
        x(random_tensor(d.dtype, d.rows * d.channels, "x")),
        gamma(random_tensor(d.parameter_dtype, d.channels, "gamma")),
        beta(random_tensor(d.parameter_dtype, d.channels, "beta")),
        y(d.dtype, x.size()),
        dy(random_tensor(d.dtype, x.size(), "dy")),
        dx(d.dtype, x.size()),
        dgamma(random_tensor(d.gradient_dtype, d.channels, "dgamma")),
        dbeta(random_tensor(d.gradient_dtype, d.channels, "dbeta")),
        statistics(static_cast<std::size_t>(2 * d.channels)),
        running_mean(static_cast<std::size_t>(d.channels), 0.5F),
        running_variance(running_mean.size(), 2.0F) {
    for (std::int64_t i = 0; i < x.size(); ++i) {
      x.set(i, x.at(i) + offset);
    }
  }

  struct Expected {
    std::vector<double> y, dx, dgamma, dbeta, running_mean, running_variance, inference;
  };
  Expected expected(bool accumulate) const {
    Expected result;
    result.y.resize(static_cast<std::size_t>(x.size()));
    result.dx = result.inference = result.y;
    const auto rows = static_cast<double>(dims.rows);
    for (std::int64_t c = 0; c < dims.channels; ++c) {
      double m = 0, v = 0, sum = 0, product = 0;
      for (std::int64_t r = 0; r < dims.rows; ++r) {
        m += x.at(r * dims.channels + c) / rows;
      }
      for (std::int64_t r = 0; r < dims.rows; ++r) {
        v += (x.at(r * dims.channels + c) - m) * (x.at(r * dims.channels + c) - m);
      }
      const double inverse = 1.0 / std::sqrt(v / rows + static_cast<double>(dims.epsilon));
      for (std::int64_t r = 0; r < dims.rows; ++r) {
        sum += dy.at(r * dims.channels + c);
        product += dy.at(r * dims.channels + c) * (x.at(r * dims.channels + c) - m) * inverse;
      }
      result.running_mean.push_back(0.9 * 0.5 + 0.1 * m);
      result.running_variance.push_back(0.9 * 2.0 + 0.1 * v / (rows - 1));
      const double running_inverse =
          1.0 / std::sqrt(result.running_variance.back() + static_cast<double>(dims.epsilon));
      for (std::int64_t r = 0; r < dims.rows; ++r) {
        const std::int64_t at = r * dims.channels + c;
        const double normal = (x.at(at) - m) * inverse;
        result.y[static_cast<std::size_t>(at)] = normal * gamma.at(c) + beta.at(c);
        result.dx[static_cast<std::size_t>(at)] =
            gamma.at(c) * inverse * (dy.at(at) - sum / rows - normal * product / rows);
        result.inference[static_cast<std::size_t>(at)] =
            (x.at(at) - result.running_mean.back()) * running_inverse * gamma.at(c) + beta.at(c);
      }
      result.dgamma.push_back((accumulate ? dgamma.at(c) : 0.0) + product);
      result.dbeta.push_back((accumulate ? dbeta.at(c) : 0.0) + sum);
    }
    return result;
  }

  float* inverse_deviation() { return statistics.data() + dims.channels; }
  RunningStatistics running() { return {.mean = running_mean.data(), .variance = running_variance.data()}; }
  BatchNormOperands operands() { return {.x = x.data(), .gamma = gamma.data(), .beta = beta.data(), .y = y.data()}; }
  void run(bool accumulate) {
    Workspace workspace(batch_norm_workspace_bytes(dims));
    batch_norm_forward(dims, operands(), {.mean = statistics.data(), .inverse_deviation = inverse_deviation()},
                       workspace.span());
    update_running_statistics(dims, statistics.data(), 0.9F, 0.1F, running());
    batch_norm_backward(dims,
                        {.dy = dy.data(),
                         .x = x.data(),
                         .gamma = gamma.data(),
                         .mean = statistics.data(),
                         .inverse_deviation = inverse_deviation(),
                         .dx = dx.data(),
                         .dgamma = dgamma.data(),
                         .dbeta = dbeta.data()},
                        accumulate, workspace.span());
    EXPECT_TRUE(workspace.guard_intact());
  }
};

TEST(BatchNorm, ForwardAndGradientsAtOddShapes) {
  for (const auto& [rows, channels] : {std::pair<std::int64_t, std::int64_t>{2, 3}, {33, 5}, {700, 67}, {1025, 64}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << "x" << channels << " " << to_string(dtype) << " accumulate "
                                        << accumulate);
        Layer layer(
            {.rows = rows, .channels = channels, .dtype = dtype, .parameter_dtype = dtype, .gradient_dtype = dtype});
        const auto expected = layer.expected(accumulate);
        layer.run(accumulate);
        EXPECT_LT(relative_error(layer.y.values(), expected.y), tolerance(dtype));
        // Two rows: dx is a difference of nearly equal numbers, zero but for epsilon.
        EXPECT_LT(relative_error(layer.dx.values(), expected.dx), rows == 2 ? 0.1 : 2 * tolerance(dtype));
        EXPECT_LT(relative_error(layer.dgamma.values(), expected.dgamma), 2 * tolerance(dtype));
        EXPECT_LT(relative_error(layer.dbeta.values(), expected.dbeta), 2 * tolerance(dtype));
        EXPECT_LT(relative_error({layer.running_mean.begin(), layer.running_mean.end()}, expected.running_mean), 1e-6);
        EXPECT_LT(
            relative_error({layer.running_variance.begin(), layer.running_variance.end()}, expected.running_variance),
            1e-6);

        Workspace workspace(batch_norm_workspace_bytes(layer.dims));
        batch_norm_inference(layer.dims, layer.operands(), layer.running(), workspace.span());
        EXPECT_LT(relative_error(layer.y.values(), expected.inference), tolerance(dtype));
      }
    }
  }
}

TEST(BatchNorm, AMeanAThousandTimesTheDeviationDoesNotCancel) {
  Layer layer({.rows = 900, .channels = 20}, 1000.0);
  const auto expected = layer.expected(false);
  layer.run(false);
  // x itself carries 2^-24 · 1000 / 0.58; sums of squares would leave no digit at all.
  EXPECT_LT(relative_error(layer.y.values(), expected.y), 2e-4);
}

TEST(BatchNorm, SameBitsForAnyThreads) {
  const int before = omp_get_max_threads();
  std::vector<Layer> layers;
  for (int threads = 1; threads <= 3; ++threads) {
    omp_set_num_threads(threads);
    layers.emplace_back(BatchNormDims{.rows = 1000, .channels = 150});
    layers.back().run(true);
  }
  omp_set_num_threads(before);
  for (const Layer& layer : layers) {
    EXPECT_EQ(layer.y.bits(), layers[0].y.bits());
    EXPECT_EQ(layer.dx.bits(), layers[0].dx.bits());
    EXPECT_EQ(layer.dgamma.bits(), layers[0].dgamma.bits());
  }
}

TEST(BatchNorm, RefusesOneRow) { EXPECT_THROW(batch_norm_workspace_bytes({.rows = 1, .channels = 3}), InternalError); }

}  // namespace
}  // namespace strata::cpu::test_batch_norm
