#pragma once

/// @file
/// A convolution and its gradients: in double, product by product, and as the kernels of the CPU compute them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "exec/cpu/kernels/convolution.hpp"
#include "unit/exec/dense_reference.hpp"

namespace strata::test {

/// A convolution with its tensors, what it computes in double, and what the kernels compute.
struct ConvolutionLayer {
  ConvolutionDims dims;
  Tensor x, weight, bias, y, dy, dx, dweight, dbias;

  ConvolutionLayer(const ConvolutionDims& d, Make make)
      : dims(d),
        x(make(d.dtype, d.images * d.height * d.width * d.in, "x")),
        weight(make(d.dtype, d.out * d.kernel_h * d.kernel_w * d.in, "weight")),
        bias(make(d.dtype, d.out, "bias")),
        y(make(d.dtype, d.images * d.out_height() * d.out_width() * d.out, "y")),
        dy(make(d.dtype, y.size(), "dy")),
        dx(make(d.dtype, x.size(), "dx")),
        dweight(make(d.gradient_dtype, weight.size(), "dweight")),
        dbias(make(d.gradient_dtype, d.out, "dbias")) {}

  /// Calls body(index of y, index of x, index of weight) for every product of the convolution.
  template <typename Body>
  void for_products(Body&& body) const {
    for (std::int64_t image = 0; image < dims.images; ++image) {
      for (std::int64_t row = 0; row < dims.out_height(); ++row) {
        for (std::int64_t col = 0; col < dims.out_width(); ++col) {
          for (std::int64_t kh = 0; kh < dims.kernel_h; ++kh) {
            for (std::int64_t kw = 0; kw < dims.kernel_w; ++kw) {
              const std::int64_t h = row * dims.stride - dims.padding + kh;
              const std::int64_t w = col * dims.stride - dims.padding + kw;
              if (h < 0 || h >= dims.height || w < 0 || w >= dims.width) {
                continue;
              }
              for (std::int64_t o = 0; o < dims.out; ++o) {
                for (std::int64_t i = 0; i < dims.in; ++i) {
                  body(((image * dims.out_height() + row) * dims.out_width() + col) * dims.out + o,
                       ((image * dims.height + h) * dims.width + w) * dims.in + i,
                       ((o * dims.kernel_h + kh) * dims.kernel_w + kw) * dims.in + i);
                }
              }
            }
          }
        }
      }
    }
  }

  struct Expected {
    std::vector<double> y, dx, dweight, dbias;
  };
  Expected expected(bool accumulate) const {
    const auto zeros = [](std::int64_t count) { return std::vector<double>(static_cast<std::size_t>(count)); };
    Expected result{zeros(y.size()), zeros(x.size()), zeros(weight.size()), zeros(dims.out)};
    if (accumulate) {
      result.dweight = dweight.values();
      result.dbias = dbias.values();
    }
    for_products([&](std::int64_t to, std::int64_t from, std::int64_t by) {
      result.y[static_cast<std::size_t>(to)] += x.at(from) * weight.at(by);
      result.dx[static_cast<std::size_t>(from)] += dy.at(to) * weight.at(by);
      result.dweight[static_cast<std::size_t>(by)] += dy.at(to) * x.at(from);
    });
    for (std::int64_t i = 0; i < y.size(); ++i) {
      double& value = result.y[static_cast<std::size_t>(i)];
      value += dims.bias ? bias.at(i % dims.out) : 0.0;
      value = dims.relu ? std::max(value, 0.0) : value;
      result.dbias[static_cast<std::size_t>(i % dims.out)] += dy.at(i);
    }
    return result;
  }

  void run(bool accumulate) {
    Workspace for_forward(cpu::convolution_forward_workspace_bytes(dims));
    cpu::convolution_forward(dims, x.data(), weight.data(), dims.bias ? bias.data() : nullptr, y.data(),
                             for_forward.span());
    Workspace for_input(cpu::convolution_backward_input_workspace_bytes(dims));
    cpu::convolution_backward_input(dims, dy.data(), weight.data(), dx.data(), for_input.span());
    Workspace for_weight(cpu::convolution_backward_weight_workspace_bytes(dims, accumulate));
    cpu::convolution_backward_weight(dims, dy.data(), x.data(), dweight.data(), dims.bias ? dbias.data() : nullptr,
                                     accumulate, for_weight.span());
    EXPECT_TRUE(for_forward.guard_intact() && for_input.guard_intact() && for_weight.guard_intact());
  }
};

}  // namespace strata::test
