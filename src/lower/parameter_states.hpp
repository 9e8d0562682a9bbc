#pragma once

/// @file
/// Parameters, gradients and optimizer states of one rank: their buffers, initial values, reduction and update.
///
/// Gradients stand in buckets, in the order in which the backward pass completes them, so that one all-reduce a bucket
/// can start as soon as its last gradient is there. Today every state is replicated over the data axis; shards refine
/// this file.

#include <vector>

#include "ir/model_graph.hpp"
#include "ir/plan.hpp"
#include "lower/builder.hpp"

namespace strata {

/// Stream numbers of every Program that is lowered here.
constexpr int compute_stream = 0;
constexpr int communication_stream = 1;

class ParameterStates {
 public:
  /// @param data_group group of the ranks that hold the same parameters; -1: this rank alone.
  ParameterStates(const Plan& plan, const ModelGraph& graph, ProgramBuilder& builder, int data_group);

  /// Prologue: initial values by global index, zero states.
  void initialize();

  /// What kernels read: the compute dtype.
  Operand weight(int parameter) const;

  /// Where a kernel puts its contribution to a gradient. `accumulate`: an earlier contribution of this step is there.
  struct Destination {
    Operand operand;
    bool accumulate = false;
  };
  Destination gradient(int parameter);

  /// A contribution to @p parameter has been emitted. The last one of the last micro-batch completes it; a complete
  /// bucket is reduced at once if the plan overlaps reduction with backward.
  void contributed(int parameter, bool last_micro_batch);

  /// After backward: the reductions that were not overlapped.
  void reduce_remaining();
  /// Gradient norm and clipping where the plan asks for it, then the optimizer, bucket by bucket.
  void update();

 private:
  struct Owned {
    int weight = -1;          ///< compute dtype
    int master = -1;          ///< f32; the same buffer as weight where compute is f32
    std::vector<int> states;  ///< f32: momentum, or first and second moment
    int bucket = -1;
    std::int64_t bucket_begin = 0;
    int contributions = 0;  ///< of one micro-batch
    int remaining = 0;      ///< contributions of the last micro-batch still to come
    bool written = false;   ///< this step
  };
  struct Bucket {
    int buffer = -1;
    std::vector<int> parameters;
    int incomplete = 0;
    bool reduced = false;
  };
  void assign_buckets();
  void reduce(Bucket& bucket, std::size_t index);
  void emit_update(int parameter, int factor_buffer);
  int num_states() const;

  const Plan& plan_;
  const ModelGraph& graph_;
  ProgramBuilder& builder_;
  int data_group_;
  std::vector<Owned> owned_;
  std::vector<Bucket> buckets_;
};

}  // namespace strata
