#pragma once

/// @file
/// Parameters and optimizer states of one rank: their buffers, initial values, gathers and updates. Gradients are in
/// gradient_sums.
///
/// A rank keeps its p shard of every parameter in the compute dtype and its os shard of master values and moments
/// (shards.hpp). A parameter that is sharded is gathered before a kernel reads it; who does so when is gathering's
/// business. After the update the p shard is put together again over the os/p ranks: all-gathers a tensor where each
/// updated a chunk, broadcasts where each updated whole tensors.
///
/// A stage holds the parameters that its operators use. One that several stages use (a head tied to the embedding) is
/// held by each of them, as in Megatron-LM: equal initial values, then equal updates, because the copies' gradients are
/// summed before each.

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/gradient_buckets.hpp"
#include "lower/states/gradient_emission.hpp"
#include "lower/states/quantized_gather.hpp"
#include "lower/states/shard_groups.hpp"
#include "lower/step/builder.hpp"
#include "lower/step/streams.hpp"
#include "partition/shards.hpp"

namespace strata {

/// Whom a rank shares parameters with: groups of its Program, -1: nobody.
struct ParameterGroups {
  std::vector<int> data;         ///< by grid: the replicas
  int stages = -1;               ///< a rank of each stage: together they hold every parameter
  std::map<int, Copies> copies;  ///< by parameter
  int everybody = -1;            ///< all ranks, where operators are laid out
  /// Where operators are laid out: how many ranks hold each parameter's part. Empty: the groups above say it.
  std::vector<std::int64_t> num_copies;
};

class ParameterStates {
 public:
  /// @param operators of this rank's stage.
  ParameterStates(const Plan& plan, const ModelGraph& graph, const StepOrder& order,
                  std::span<const Operator> operators, std::vector<ParameterShard> shards, const ReplicaGrids& grids,
                  ProgramBuilder& builder, const ParameterGroups& groups);

  /// Prologue: initial values by global index, zero states.
  void initialize();

  /// True where no rank holds all of @p parameter between its uses.
  bool is_gathered(int parameter) const { return groups_.of(parameter).parameter >= 0; }
  /// @p parameter is gathered again after forward: where it has a second shard (ZeRO++), forward keeps it.
  void keep_for_backward(int parameter) { owned_[static_cast<std::size_t>(parameter)].read_again = true; }
  /// All of @p parameter will be on this rank when a kernel reads it. Starts once what has been issued to the compute
  /// stream is done. Nothing to do where it is there. @p phase forward: from the p shards; else from the second shards
  /// (ZeRO++) where the plan has them; a second shard over one rank is all of it, and nothing travels.
  void gather(int parameter, Phase phase, int micro_batch);
  /// A kernel that is about to be issued reads @p parameter, which has been gathered: what has to be done with it on
  /// the compute stream, now and not when it was asked for, so that what runs until then hides the transfer.
  void arrive(int parameter, Phase phase, int micro_batch);
  /// Whoever reads it next gathers it again.
  void release(int parameter) {
    owned_[static_cast<std::size_t>(parameter)].gathered = owned_[static_cast<std::size_t>(parameter)].packed = -1;
  }

  /// What kernels read: the compute dtype. @throws InternalError if it is sharded and has not been gathered.
  Operand weight(int parameter) const;

  GradientEmission& gradients() { return gradients_; }

  /// Gradient norm and clipping where the plan asks for it, then the optimizer, bucket by bucket, of @p parameters
  /// whose sums are complete.
  void update(std::span<const int> parameters);

  /// Where updates are spread under the next step (overlap.broadcast = next_forward): at the beginning of a repetition,
  /// as instructions of the training step before, in the order of the forward; those of sharded parameters just before
  /// they are gathered.
  void spread_last_updates();

 private:
  struct Owned {
    int weight = -1;                   ///< p shard, compute dtype
    Operand master;                    ///< os shard, f32; a part of the weight's buffer where compute is f32
    std::vector<int> states;           ///< os shard, f32: momentum, or first and second moment
    int gathered = -1;                 ///< all of it, for the kernels that are being issued
    int packed = -1;                   ///< quantised, on its way; `gathered` once a kernel reads it
    bool read_again = false;           ///< after forward
    bool spread_is_due = false;        ///< this step's first gather waits for the last step's updates
    std::optional<Operand> secondary;  ///< this rank's part of the second copy, once this step's forward has made it
    bool held() const { return weight >= 0; }
  };
  std::vector<Owned> make_owned(std::span<const Operator> operators);
  int add_gathered(int parameter);
  void keep_secondary(int parameter);
  int gradient_norm();
  void sum_over_groups(int sum);
  void sum_over_everybody(int sum);
  void add_squares(std::span<const GradientSums::Counted> parts, int group, int sum);
  void all_reduce_norm(int sum, int group);
  void emit_update(int parameter, int factor_buffer);
  void spread(int parameter, int step);
  bool spreads_late() const { return plan_.overlap.broadcast == "next_forward"; }
  bool mixed() const { return plan_.dtypes.compute != DType::f32; }
  const ParameterShard& shard(int parameter) const { return shards_[static_cast<std::size_t>(parameter)]; }

  const Plan& plan_;
  const ModelGraph& graph_;
  std::vector<ParameterShard> shards_;  ///< by parameter of the graph
  ProgramBuilder& builder_;
  ShardGroups groups_;
  std::span<const Operator> operators_;
  int stages_;
  int everybody_;
  std::vector<std::int64_t> num_copies_;  ///< by parameter, see ParameterGroups
  QuantizedGather quantized_;
  std::vector<Owned> owned_;  ///< by parameter of the graph; those of other stages are empty
  GradientEmission gradients_;
};

}  // namespace strata
