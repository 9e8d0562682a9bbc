#pragma once

/// @file
/// Parameters, gradients and optimizer states of one rank: their buffers, initial values, reduction and update.
///
/// Gradients stand in buckets, in the order in which the backward pass completes them, so that one all-reduce a bucket
/// can start as soon as its last gradient is there. Today every state is replicated over the data axis; shards refine
/// this file.
///
/// A stage holds the parameters that its operators use. One that several stages use (a head tied to the embedding) is
/// held by each of them, as in Megatron-LM: equal initial values, then equal updates, because the copies' gradients are
/// summed before each.

#include <map>
#include <span>
#include <vector>

#include "ir/model_graph.hpp"
#include "ir/plan.hpp"
#include "lower/builder.hpp"

namespace strata {

/// Stream numbers of every Program that is lowered here.
constexpr int compute_stream = 0;
constexpr int communication_stream = 1;

/// Whom a rank sums gradients with: groups of its Program, -1: nobody.
struct ParameterGroups {
  int data = -1;    ///< the replicas of this rank's stage
  int stages = -1;  ///< a rank of each stage: together they hold every parameter
  /// A parameter that other stages use too.
  struct Copies {
    int group = -1;        ///< a rank of each of these stages
    bool counted = false;  ///< in the norm of all gradients: by one of the copies
  };
  std::map<int, Copies> copies{};  ///< by parameter
};

class ParameterStates {
 public:
  /// @param operators of this rank's stage.
  ParameterStates(const Plan& plan, const ModelGraph& graph, std::span<const Operator> operators,
                  ProgramBuilder& builder, ParameterGroups groups);

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

  /// After backward: the reductions that were not overlapped, and those over the copies of a parameter.
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
    int remaining = 0;     ///< contributions of the last micro-batch still to come; at first those of any micro-batch
    bool written = false;  ///< this step
    bool held() const { return weight >= 0; }
  };
  struct Bucket {
    int buffer = -1;
    std::vector<int> parameters;
    int incomplete = 0;
    bool reduced = false;
    bool counted = true;  ///< in the norm of all gradients
  };
  void assign_buckets();
  void reduce(Bucket& bucket, std::size_t index);
  void all_reduce_bucket(const Bucket& bucket, int group, std::string name);
  int gradient_norm();
  void emit_update(int parameter, int factor_buffer);
  int num_states() const;

  const Plan& plan_;
  const ModelGraph& graph_;
  std::span<const Operator> operators_;
  ProgramBuilder& builder_;
  ParameterGroups groups_;
  std::vector<Owned> owned_;  ///< by parameter of the graph; those of other stages are empty
  std::vector<Bucket> buckets_;
};

}  // namespace strata
