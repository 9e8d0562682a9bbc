#pragma once

/// @file
/// Where the gradients of activations are while one part of a rank goes backward: which place each contribution to a
/// gradient is made in, and which gradients are in one place. A value that follows from the graph, the same for all
/// micro-batches; Activations has the buffers of the places of one of them.
///
/// The first contribution makes a gradient, the others are added to it. An elementwise kernel that is the last reader
/// of its output's gradient makes its input's where that one was. The inputs of an addition have the gradient of its
/// output, in the same place and without a kernel; who then adds to one of them makes a copy first, if others still
/// have to read the place. The loss leaves the gradient of its input where the values were, if nobody else reads these.

#include <map>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "lower/step/tensor_uses.hpp"
#include "partition/stages.hpp"

namespace strata {

struct ActivationGradients {
  /// Of an operator's backward to the gradient of one of its inputs.
  struct Contribution {
    int place = -1;               ///< where the gradient is behind it; -1: it makes none
    int written = -1;             ///< what the kernel writes: `place`, or another that is then added to it
    bool can_accumulate = false;  ///< the kernel can add
    bool accumulate = false;      ///< and does, to what is in `written`
    int copy_of = -1;             ///< `place` begins as a copy of this one, which others still read; -1: it does not
    bool is_values = false;       ///< `place` is where the values of the input are
    bool operator==(const Contribution&) const = default;
  };
  struct OfOperator {
    int output = -1;                     ///< the place of its first output's gradient; -1: none, no kernel runs
    std::vector<Contribution> inputs{};  ///< by input
    bool operator==(const OfOperator&) const = default;
  };

  std::vector<int> tensors{};           ///< by place: a tensor whose gradient it is made for
  std::vector<OfOperator> operators{};  ///< by operator of the graph; those of other parts have nothing
  std::map<int, int> received{};  ///< by tensor that crosses the end of the part: the place that its gradient comes to
  std::map<int, int> sent{};      ///< by tensor that crosses the beginning: the place that it is sent from
};

/// Of the operators of @p part.
ActivationGradients activation_gradients(const ModelGraph& graph, const TensorUses& uses, const Stage& part);

}  // namespace strata
