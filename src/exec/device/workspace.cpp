#include "exec/device/workspace.hpp"

#include "base/ceil_div.hpp"
#include "exec/device/attention_choice.hpp"
#include "exec/kernel_arguments.hpp"

namespace strata::cuda {

std::int64_t convolution_workspace_bytes(const ConvolutionDims& d) {
  constexpr std::int64_t own = std::int64_t{128} << 20;
  constexpr std::int64_t channels = 8;
  if (d.in % channels == 0) return own;
  return own + d.images * d.height * d.width * round_up(d.in, channels) * size_of(d.dtype);
}

std::int64_t workspace_bytes(const Program& program, const Instruction& in, const Numerics& numerics) {
  const KernelDims dims(program, in);
  constexpr std::int64_t f32 = size_of(DType::f32);
  const auto column_sums = [](std::int64_t rows, std::int64_t columns) { return num_row_blocks(rows) * columns * f32; };
  switch (in.kernel) {
    case Kernel::linear_forward:
    case Kernel::linear_backward_input: return matmul_workspace_bytes;
    case Kernel::linear_backward_weight: {
      const LinearDims d = dims.linear();
      return matmul_workspace_bytes + (d.bias ? column_sums(d.tokens, d.out) : 0);
    }
    case Kernel::convolution_forward:
    case Kernel::convolution_backward_input: return convolution_workspace_bytes(dims.convolution());
    case Kernel::convolution_backward_weight: {
      // cuDNN's, the gradient in the dtype of the activations, and the sums behind the bias.
      const ConvolutionDims d = dims.convolution();
      return convolution_workspace_bytes(d) + d.out * d.kernel_h * d.kernel_w * d.in * f32 +
             (d.bias ? column_sums(d.images * d.out_height() * d.out_width(), d.out) : 0);
    }
    case Kernel::relu_backward:
    case Kernel::max_pool_backward: {
      if (in.outputs.size() < 2) return 0;
      const ColumnSumsDims d = dims.bias_gradient();
      return column_sums(d.rows, d.columns);
    }
    case Kernel::layer_norm_backward: return column_sums(dims.integer("rows"), 2 * dims.integer("width"));
    case Kernel::rms_norm_backward: return column_sums(dims.integer("rows"), dims.integer("width"));
    case Kernel::norm_backward_partial: {
      const SplitNormDims d = dims.split_norm();
      return column_sums(d.rows, d.rms ? d.width : 2 * d.width);
    }
    case Kernel::batch_norm_forward:
    case Kernel::batch_norm_backward:
      // Two sums of each block and channel, three coefficients a channel.
      return column_sums(dims.integer("rows"), 2 * dims.integer("channels")) + 3 * dims.integer("channels") * f32;
    case Kernel::embedding_backward: return dims.integer("rows") * std::int64_t{sizeof(std::uint64_t)};
    case Kernel::attention_forward: {
      const AttentionDims d = dims.attention();
      return uses_cudnn_attention(d, numerics) ? dropout_mask_bytes(d) + cudnn_forward_workspace_bytes : 0;
    }
    case Kernel::attention_backward: {
      const AttentionDims d = dims.attention();
      return uses_cudnn_attention(d, numerics) ? cudnn_backward_workspace(d, numerics.deterministic).total()
                                               : d.batch * d.num_heads * d.seq * f32;
    }
    case Kernel::sum_of_squares:
    case Kernel::sum_loss: return max_sum_blocks * std::int64_t{sizeof(double)};
    default: return 0;
  }
}

}  // namespace strata::cuda
