#pragma once

/// @file
/// Which neighbouring instructions the kernels of an executor compute at once: data about it, which lowering is given.

namespace strata {

struct Fusions {
  bool convolution_relu = false;     ///< convolution_forward with `relu`
  bool max_pool_relu = false;        ///< max_pool_forward with `relu`, whose backward is that of the ReLU before it too
  bool bias_gradient_first = false;  ///< dbias of relu_backward and max_pool_backward instead of the convolution's
  bool linear_gelu = false;          ///< linear_forward and linear_backward_input with `gelu`, of vectors of columns
  bool add_norm = false;             ///< layer_norm_forward and rms_norm_forward with `adds`
  bool logit_rows_in_vectors =
      false;  ///< rows of logits may be `ld` apart: their products are faster where that is even
  bool operator==(const Fusions&) const = default;
};

}  // namespace strata
