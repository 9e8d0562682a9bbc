#pragma once

/// @file
/// Which buffer holds which tensor of a micro-batch, and which holds its gradient, between its forward and the end of
/// its backward. Buffers may be shared: an in-place operator writes its output over its input, and the two inputs of an
/// addition have one gradient.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/step/builder.hpp"
#include "partition/recomputation.hpp"

namespace strata {

/// What a graph does with its tensors, for all micro-batches.
struct TensorUses {
  /// @param regions of @p graph that are recomputed.
  TensorUses(const ModelGraph& graph, std::span<const RecomputedRegion> regions);

  std::vector<bool> needs_gradient;  ///< activations that depend on a parameter
  std::vector<int> num_consumers;
  std::vector<int> num_saved_for;  ///< operators whose backward reads it, or that run again and read it
};

/// A buffer for each tensor that has one; several tensors may have the same.
class BuffersOfTensors {
 public:
  explicit BuffersOfTensors(std::size_t num_tensors) : buffers_(num_tensors, -1) {}

  /// -1: none.
  int of(int tensor) const { return buffers_[static_cast<std::size_t>(tensor)]; }
  /// @param buffer -1: none from now on.
  void set(int tensor, int buffer);
  int num_tensors(int buffer) const {
    const auto b = static_cast<std::size_t>(buffer);
    return b < num_tensors_.size() ? num_tensors_[b] : 0;
  }

 private:
  std::vector<int> buffers_;      ///< by tensor
  std::vector<int> num_tensors_;  ///< by buffer, up to the last that any tensor has had
};

class Activations {
 public:
  /// @param num_samples of one micro-batch on this rank, by tensor.
  Activations(const ModelGraph& graph, const TensorUses& uses, DType compute, std::span<const std::int64_t> num_samples,
              int micro_batch, ProgramBuilder& builder);

  bool has(int tensor) const { return values_.of(tensor) >= 0; }
  /// @throws InternalError if nothing has produced it.
  Operand value(int tensor) const;
  /// A new buffer for the tensor.
  Operand produce(int tensor);
  /// The tensor takes over the buffer of @p other, whose content is lost.
  Operand produce_in_place(int tensor, int other);
  /// No longer held: recomputed when the backward pass needs it.
  void drop(int tensor) { values_.set(tensor, -1); }

  /// True where writing `op`'s output over its input number @p input loses nothing that anybody still reads.
  bool may_overwrite(const Operator& op, int input) const;

  /// True for activations that depend on a parameter.
  bool needs_gradient(int tensor) const { return uses_.needs_gradient[static_cast<std::size_t>(tensor)]; }
  bool has_gradient(int tensor) const { return gradients_.of(tensor) >= 0; }

  /// The complete gradient of @p tensor, handed to the backward of its producer.
  struct Taken {
    Operand operand;
    bool exclusive = false;  ///< nobody else needs the buffer: it may be overwritten
  };
  Taken take_gradient(int tensor);
  /// The same, left to be taken by another slice of its producer.
  Operand gradient(int tensor) const;

  /// For an operator whose kernel leaves the gradient where its first input was, in forward: that input, or a copy of
  /// it where others still read the values, as the backward of what has made them may. The gradient's from now on.
  Operand turn_into_gradient(const Operator& op);

  /// What @p buffer holds, also for others, is all that has been contributed to the gradient of @p tensor.
  void share_gradient(int tensor, int buffer);

  /// Where a kernel may put its contribution. `accumulate`: add to what is there.
  struct Destination {
    Operand operand;
    bool accumulate = false;
  };
  /// @param can_accumulate the kernel can add; otherwise a fresh buffer is given where there is something already, and
  /// `merge` adds it.
  Destination gradient_destination(int tensor, bool can_accumulate);
  /// What gradient_destination() gave last for @p tensor.
  Destination last_destination(int tensor) const { return destinations_[static_cast<std::size_t>(tensor)]; }
  /// Adds a contribution that could not be accumulated by its kernel. @p name for the instruction.
  void merge(int tensor, const Destination& destination, const std::string& name);

  std::int64_t num_samples(int tensor) const { return num_samples_[static_cast<std::size_t>(tensor)]; }
  int micro_batch() const { return micro_batch_; }

 private:
  Destination new_destination(int tensor, bool can_accumulate);
  Operand new_buffer(const std::string& name, int tensor, Category category);
  /// One operator reads it, which is about to, and so many save it for their backward: what it holds may be lost.
  bool has_one_reader(int tensor, int num_saved_for) const;
  void detach(int tensor, const std::string& name);

  const ModelGraph& graph_;
  const TensorUses& uses_;
  DType compute_;
  std::span<const std::int64_t> num_samples_;
  int micro_batch_;
  ProgramBuilder& builder_;
  BuffersOfTensors values_;
  BuffersOfTensors gradients_;
  std::vector<Destination> destinations_;  ///< by tensor
};

}  // namespace strata
