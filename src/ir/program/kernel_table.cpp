/// @file
/// One row a kernel: operand roles, attributes, arithmetic. The text form, verify and every executor read this table.

#include <array>
#include <cmath>

#include "base/error.hpp"
#include "ir/program/program.hpp"

namespace strata {
namespace {

using enum Kernel;

// Runs of neighbours at up to eight distances, see permute. A macro, because literals are joined before there are
// constants.
#define STRATA_RUNS                                                                                              \
  "run?,size0?,stride0?,size1?,stride1?,size2?,stride2?,size3?,stride3?,size4?,stride4?,size5?,stride5?,size6?," \
  "stride6?,size7?,stride7?,period0?,period1?,period2?,period3?,period4?,period5?,period6?,period7?"

// rows: samples × positions. Attributes named in plural count things; `first_sample` is the global index, within the
// step's batch, of the first sample of the operands: what random numbers and data are indexed by. A slice of a linear
// or of an embedding has the columns [first_column, first_column + in or width) of an activation whose rows have `row`
// elements: x, dx, or the embedding's y and dy, whose operand is all of it. Without these two it has all columns.
// A part of an embedding holds the rows [first_token, first_token + table_rows) of its table; of attention, the heads
// from first_head on, of total_heads. Without them it is the whole. A dropout's elements are numbered from
// first_element on, in runs as those that permute takes where others stand between them.
constexpr std::array table = {
    KernelSignature{none, "none", "", "", ""},
    KernelSignature{load_tokens, "load_tokens", "", "tokens,targets?", "samples,first_sample,sequence"},
    KernelSignature{load_images, "load_images", "", "pixels,labels?", "samples,first_sample"},
    KernelSignature{load_targets, "load_targets", "", "targets", "samples,first_sample"},
    KernelSignature{embedding_forward, "embedding_forward", "tokens,table,positions?", "y",
                    "rows,sequence,width,vocabulary,first_column?,row?,first_token?,table_rows?"},
    KernelSignature{embedding_backward, "embedding_backward", "tokens,dy", "dtable,dpositions?",
                    "rows,sequence,width,vocabulary,accumulate,first_column?,row?,first_token?,table_rows?"},
    // ld: elements from one row of y and dy, or of logits and their gradient, to the next, where it is not the number
    // of columns; what stands between rows is nobody's. gelu: y is that of what would be y without it, and `before` is
    // this, where somebody reads it; dx is the gradient of what `before` was.
    KernelSignature{linear_forward, "linear_forward", "x,weight,bias?", "y,before?",
                    "rows,in,out,accumulate?,first_column?,row?,gelu?,ld?"},
    KernelSignature{linear_backward_input, "linear_backward_input", "dy,weight,before?", "dx",
                    "rows,in,out,accumulate,first_column?,row?,gelu?,ld?"},
    KernelSignature{linear_backward_weight, "linear_backward_weight", "x,dy", "dweight,dbias?",
                    "rows,in,out,accumulate,first_column?,row?,ld?"},
    // adds: what is normalised is x + residual, which is `sum`, rounded.
    KernelSignature{layer_norm_forward, "layer_norm_forward", "x,weight,bias,residual?", "y,statistics,sum?",
                    "rows,width,epsilon,adds?"},
    KernelSignature{layer_norm_backward, "layer_norm_backward", "dy,x,weight,statistics", "dx,dweight,dbias",
                    "rows,width,epsilon,accumulate"},
    KernelSignature{rms_norm_forward, "rms_norm_forward", "x,weight,residual?", "y,statistics,sum?",
                    "rows,width,epsilon,adds?"},
    KernelSignature{rms_norm_backward, "rms_norm_backward", "dy,x,weight,statistics", "dx,dweight",
                    "rows,width,epsilon,accumulate"},
    KernelSignature{rotary_forward, "rotary_forward", "x", "y", "samples,sequence,heads,kv_heads,head_dim,theta"},
    KernelSignature{rotary_backward, "rotary_backward", "dy", "dx", "samples,sequence,heads,kv_heads,head_dim,theta"},
    KernelSignature{attention_forward, "attention_forward", "qkv", "y,statistics",
                    "samples,first_sample,sequence,heads,kv_heads,head_dim,causal,dropout,first_head?,total_heads?"},
    KernelSignature{attention_backward, "attention_backward", "dy,qkv,y,statistics", "dqkv",
                    "samples,first_sample,sequence,heads,kv_heads,head_dim,causal,dropout,first_head?,total_heads?"},
    KernelSignature{gelu_forward, "gelu_forward", "x", "y", "elements"},
    KernelSignature{gelu_backward, "gelu_backward", "dy,x", "dx", "elements"},
    KernelSignature{gelu_erf_forward, "gelu_erf_forward", "x", "y", "elements"},
    KernelSignature{gelu_erf_backward, "gelu_erf_backward", "dy,x", "dx", "elements"},
    KernelSignature{relu_forward, "relu_forward", "x", "y", "elements"},
    // dbias: sums of dx over its rows of `channels`, where it is the gradient behind a bias.
    KernelSignature{relu_backward, "relu_backward", "dy,y", "dx,dbias?", "elements,channels?,accumulate?"},
    KernelSignature{swiglu_forward, "swiglu_forward", "x", "y", "rows,width"},
    KernelSignature{swiglu_backward, "swiglu_backward", "dy,x", "dx", "rows,width"},
    KernelSignature{add, "add", "a,b", "y", "elements"},
    KernelSignature{dropout_forward, "dropout_forward", "x", "y", "elements,first_element,probability," STRATA_RUNS},
    KernelSignature{dropout_backward, "dropout_backward", "dy", "dx",
                    "elements,first_element,probability," STRATA_RUNS},
    // relu: y = max(0, ·).
    KernelSignature{convolution_forward, "convolution_forward", "x,weight,bias?", "y",
                    "samples,in,out,kernel,stride,padding,height,width,relu?"},
    KernelSignature{convolution_backward_input, "convolution_backward_input", "dy,weight", "dx",
                    "samples,in,out,kernel,stride,padding,height,width"},
    KernelSignature{convolution_backward_weight, "convolution_backward_weight", "x,dy", "dweight,dbias?",
                    "samples,in,out,kernel,stride,padding,height,width,accumulate"},
    // relu: x is what a ReLU wrote, and where a maximum is not above 0 the index is that of no element: backward then
    // gives the gradient of the ReLU's input. dbias: sums of dx over all positions.
    KernelSignature{max_pool_forward, "max_pool_forward", "x", "y,indices",
                    "samples,channels,kernel,stride,padding,height,width,relu?"},
    KernelSignature{max_pool_backward, "max_pool_backward", "dy,indices", "dx,dbias?",
                    "samples,channels,kernel,stride,padding,height,width,accumulate?"},
    KernelSignature{average_pool_forward, "average_pool_forward", "x", "y", "samples,channels,height,width"},
    KernelSignature{average_pool_backward, "average_pool_backward", "dy", "dx", "samples,channels,height,width"},
    KernelSignature{class_token_forward, "class_token_forward", "x,token,positions", "y",
                    "samples,channels,height,width"},
    KernelSignature{class_token_backward, "class_token_backward", "dy", "dx,dtoken,dpositions",
                    "samples,channels,height,width,accumulate"},
    KernelSignature{first_row_forward, "first_row_forward", "x", "y", "samples,sequence,width"},
    KernelSignature{first_row_backward, "first_row_backward", "dy", "dx", "samples,sequence,width"},
    KernelSignature{batch_norm_forward, "batch_norm_forward", "x,weight,bias", "y,statistics", "rows,channels,epsilon"},
    KernelSignature{batch_norm_backward, "batch_norm_backward", "dy,x,weight,statistics", "dx,dweight,dbias",
                    "rows,channels,epsilon,accumulate"},
    KernelSignature{batch_norm_inference, "batch_norm_inference", "x,weight,bias,running_mean,running_variance", "y",
                    "rows,channels,epsilon"},
    // mean · decay + weight · the mean that `statistics` has, and the variance likewise, unbiased, of `rows` rows.
    KernelSignature{running_statistics, "running_statistics", "statistics", "running_mean,running_variance",
                    "rows,channels,epsilon,decay,weight"},
    KernelSignature{cross_entropy, "cross_entropy", "logits,targets", "loss,dlogits", "rows,classes,scale,ld?"},
    // 1 where the target is the largest logit, or among the five largest, else 0; of equal ones the first counts as
    // larger. A row whose target is negative is none: 0 everywhere.
    KernelSignature{top_k, "top_k", "logits,targets", "loss,top_1,top_5", "rows,classes,ld?"},
    // Tensor layouts (lower/laid_out_graph). y has, in its own order, runs of neighbours of x: run (i0, i1, …), of
    // sizes size0, size1, …, the last innermost, begins at first + i0 · stride0 + i1 · stride1 + …. Where runs are cut
    // short, period_k says how many elements of y are between two indices of level k. scatters: x has runs of y.
    KernelSignature{permute, "permute", "x", "y", "elements,first,scatters?," STRATA_RUNS},
    // Norms of rows whose features are split: `parts` ranks each have `width` of them, or, where `features`, the number
    // of all, is given, unequally many. partial: mean and sum of squared deviations of a row's part (rms: 0 and sum of
    // squares), [rows, 2], or, behind these, how many features it has, [rows, 3]; `all` has those of all parts, a part
    // after the other. Backward exchanges the two sums over a row that dx needs.
    KernelSignature{norm_partial, "norm_partial", "x", "partial", "rows,width,features?,rms"},
    KernelSignature{norm_apply, "norm_apply", "x,all,weight,bias?", "y,statistics",
                    "rows,width,features?,parts,epsilon,rms"},
    KernelSignature{norm_backward_partial, "norm_backward_partial", "dy,x,weight,statistics", "partial,dweight,dbias?",
                    "rows,width,features?,rms,accumulate"},
    KernelSignature{norm_backward_apply, "norm_backward_apply", "dy,x,weight,statistics,all", "dx",
                    "rows,width,features?,parts,rms,accumulate"},
    // Vocabulary-parallel: each of `parts` ranks has the logits of `classes` classes from first_class on, in runs where
    // others stand between them. partial: maximum, sum of exponentials above it, and the target's logit where it is
    // here, [rows, 3].
    KernelSignature{cross_entropy_partial, "cross_entropy_partial", "logits,targets", "partial",
                    "rows,classes,first_class," STRATA_RUNS},
    KernelSignature{cross_entropy_apply, "cross_entropy_apply", "logits,targets,all", "loss,dlogits",
                    "rows,classes,first_class,parts,scale," STRATA_RUNS},
    KernelSignature{accumulate, "accumulate", "x", "y", "elements"},
    KernelSignature{copy, "copy", "x", "y", "elements"},
    KernelSignature{fill, "fill", "", "y", "elements,value"},
    KernelSignature{initialize, "initialize", "", "y", "elements,distribution,a,b"},
    // Blocks of codes, base/quantization.hpp. Chunks of `chunk` elements; `nodes` says in which order they stand
    // packed, see exec/cpu/kernels/quantize.hpp. `pieces` packed tensors are added up.
    KernelSignature{quantize, "quantize", "x", "packed", "elements,chunk,chunks,nodes,block,bits"},
    KernelSignature{dequantize, "dequantize", "packed", "y", "elements,chunk,chunks,pieces,block,bits,accumulate"},
    KernelSignature{sum_of_squares, "sum_of_squares", "x", "sum", "elements,accumulate"},
    KernelSignature{clip_factor, "clip_factor", "sum", "factor,norm", "clip_norm"},
    KernelSignature{sum_loss, "sum_loss", "loss", "sum", "elements,scale,accumulate"},
    KernelSignature{sgd, "sgd", "gradient,factor?", "master,compute?", "elements,weight_decay"},
    KernelSignature{sgd_momentum, "sgd_momentum", "gradient,factor?", "master,momentum,compute?",
                    "elements,weight_decay,momentum"},
    KernelSignature{adam, "adam", "gradient,factor?", "master,m,v,compute?",
                    "elements,weight_decay,beta1,beta2,epsilon,decoupled"},
};

double convolution_flops(const Attributes& a) {
  const auto count = [&](const char* key) { return static_cast<double>(a.integer(key)); };
  const auto extent = [&](const char* size) {
    return std::floor((count(size) + 2.0 * count("padding") - count("kernel")) / count("stride")) + 1.0;
  };
  return 2.0 * count("samples") * extent("height") * extent("width") * count("out") * count("in") * count("kernel") *
         count("kernel");
}

/// Two matrix products of the forward pass; causal attention computes half of the score matrix.
double attention_flops(const Attributes& a) {
  const auto count = [&](const char* key) { return static_cast<double>(a.integer(key)); };
  return (a.integer("causal") != 0 ? 0.5 : 1.0) * 4.0 * count("samples") * count("heads") * count("head_dim") *
         count("sequence") * count("sequence");
}

}  // namespace

const KernelSignature& kernel_signature(Kernel kernel) {
  const KernelSignature& row = table.at(static_cast<std::size_t>(kernel));
  STRATA_INVARIANT(row.kernel == kernel, "the table stands in the order of the enumeration");
  return row;
}

int num_kernels() { return static_cast<int>(table.size()); }

double flops(const Instruction& instruction) {
  const Attributes& a = instruction.attributes;
  switch (instruction.kernel) {
    case linear_forward:
    case linear_backward_input:
    case linear_backward_weight:
      return 2.0 * static_cast<double>(a.integer("rows")) * static_cast<double>(a.integer("in")) *
             static_cast<double>(a.integer("out"));
    case attention_forward: return attention_flops(a);
    case attention_backward: return 2.0 * attention_flops(a);
    case convolution_forward:
    case convolution_backward_input:
    case convolution_backward_weight: return convolution_flops(a);
    case none:
    case load_tokens:
    case load_images:
    case load_targets:
    case embedding_forward:
    case embedding_backward:
    case layer_norm_forward:
    case layer_norm_backward:
    case rms_norm_forward:
    case rms_norm_backward:
    case rotary_forward:
    case rotary_backward:
    case gelu_forward:
    case gelu_backward:
    case gelu_erf_forward:
    case gelu_erf_backward:
    case relu_forward:
    case relu_backward:
    case swiglu_forward:
    case swiglu_backward:
    case add:
    case dropout_forward:
    case dropout_backward:
    case max_pool_forward:
    case max_pool_backward:
    case average_pool_forward:
    case average_pool_backward:
    case class_token_forward:
    case class_token_backward:
    case first_row_forward:
    case first_row_backward:
    case batch_norm_forward:
    case batch_norm_backward:
    case batch_norm_inference:
    case running_statistics:
    case cross_entropy:
    case top_k:
    case permute:
    case norm_partial:
    case norm_apply:
    case norm_backward_partial:
    case norm_backward_apply:
    case cross_entropy_partial:
    case cross_entropy_apply:
    case accumulate:
    case copy:
    case fill:
    case initialize:
    case quantize:
    case dequantize:
    case sum_of_squares:
    case clip_factor:
    case sum_loss:
    case sgd:
    case sgd_momentum:
    case adam: return 0.0;  // bound by memory: counted in bytes, not in operations
  }
  return 0.0;
}

}  // namespace strata
