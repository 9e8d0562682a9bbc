#pragma once

/// @file
/// Gradients of one rank: where kernels put them, and how they are summed over ranks.
///
/// Gradients stand in buckets, in the order in which the backward pass completes them, so that one all-reduce a bucket
/// can start as soon as its last gradient is there. A bucket holds p shards of parameters with equal factors and the
/// same copies. With
///   p, g, os  the factors, dp all data ranks, M micro-batches (AMSP, sec. IV-C):
/// - p > 1: the full gradient of an operator is reduce-scattered over p at every micro-batch, and added up.
/// - g = p: the bucket is summed over micro-batches, then all-reduced once over the dp/p ranks with the same shard.
/// - g = os > p: at every micro-batch but the last the bucket is all-reduced over os/p and all but the own part is
///   dropped; that part, kept, is added at its place to the last micro-batch's bucket before the all-reduce over dp/p,
///   so that nothing counts twice.
/// With optimizer.gradients = "reduce_scatter" the own part comes from a reduce-scatter a tensor over os/p instead, and
/// only that part is all-reduced, over dp/os.
///
/// What is on its way needs memory beside what is computed: a full gradient until its reduce-scatter is through, a
/// bucket of which only a part is kept until that part is there. Of each kind no more is held than the largest
/// operator's gradient and one bucket: what comes next waits for what went before, and takes its place. Additions to
/// what earlier micro-batches left wait as long, so that what runs until then hides the transfer.
///
/// Quantised gradients (ZeRO++) take the way of lower/quantized_collectives instead of the first reduce-scatter.

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/quantized_collectives.hpp"
#include "lower/states/shard_groups.hpp"
#include "lower/step/builder.hpp"
#include "partition/shards.hpp"

namespace strata {

/// A parameter that other stages use too.
struct Copies {
  int group = -1;        ///< a rank of each of these stages
  bool counted = false;  ///< in the norm of all gradients: by one of the copies
};

class GradientBuckets {
 public:
  /// @param operators of this rank's stage.  @param copies by parameter.  @param update_of by parameter: which of the
  /// step's updates it has a part in; a bucket is of one of them.
  GradientBuckets(const Plan& plan, const ModelGraph& graph, std::span<const Operator> operators,
                  std::span<const ParameterShard> shards, const ShardGroups& groups,
                  const std::map<int, Copies>& copies, std::span<const int> update_of, ProgramBuilder& builder);

  /// Where a kernel puts its contribution to a gradient. `accumulate`: an earlier contribution is there.
  struct Destination {
    Operand operand;
    bool accumulate = false;
  };
  Destination destination(int parameter);

  /// A contribution to @p parameter has been emitted. The last one of a micro-batch completes it; a complete bucket of
  /// the last micro-batch is reduced at once if the plan overlaps reduction with backward.
  void contributed(int parameter, bool last_micro_batch);

  /// Backward has issued all kernels of an operator.
  void after_operator() { quantized_.after_operator(); }

  /// Before an update of @p parameters, none of whose gradients is to come: their sums, as far as they have not begun
  /// or are on their way.
  void complete(std::span<const int> parameters);

  /// After backward: the reductions that were not overlapped, and those over the copies of a parameter.
  void reduce_remaining();

  /// The sum over all ranks, of the elements that this rank updates.
  Operand reduced(int parameter) const;

  /// What this rank contributes to the norm of all gradients.
  struct Counted {
    Operand operand;  ///< of no elements where nothing of it is this rank's
    int group = -1;   ///< whose members' parts together are one copy of the gradients; -1: this rank's is one
    std::string name;
  };
  std::vector<Counted> counted() const;

  /// In the order in which they are reduced: the order of updates.
  const std::vector<int>& parameters() const { return in_order_; }

 private:
  struct Member {
    int bucket = -1;
    std::int64_t begin = 0;       ///< of its p shard in the bucket
    std::int64_t kept_begin = 0;  ///< of its updated part in `kept`
    int num_uses = 0;             ///< contributions a micro-batch
    int num_done = 0;             ///< of them, in this micro-batch
    bool written = false;         ///< something stands at `begin` already
    int full = -1;                ///< p > 1: this micro-batch's gradient before the reduce-scatter
  };
  struct Bucket {
    std::vector<int> parameters;
    std::int64_t num_elements = 0;
    std::int64_t num_kept = 0;
    int buffer = -1;        ///< g > p: of this micro-batch
    bool keeps = false;     ///< own parts are kept apart; otherwise the bucket itself is read by the update
    int kept = -1;          ///< where; -1 also where nothing of the bucket is this rank's
    bool has_kept = false;  ///< earlier micro-batches are in `kept`
    int num_complete = 0;   ///< parameters, in this micro-batch
    bool reduced = false;
    bool counted = true;  ///< in the norm of all gradients
  };
  /// A full gradient on its way to the p shards.
  struct Scattered {
    int parameter = -1;
    int instruction = -1;  ///< the reduce-scatter
    std::int64_t num_elements = 0;
    bool awaited = false;     ///< its bucket is not complete before the compute stream has added something
    bool accumulate = false;  ///< its own part stands where it was cut from, to be added to the bucket
    Operand own;              ///< that part
    bool last_micro_batch = false;
  };
  /// A bucket on its way to `kept`.
  struct Travelling {
    std::size_t index = 0;
    int buffer = -1;
    int instruction = -1;   ///< the last of its collectives
    bool in_place = false;  ///< own parts stand in the bucket, to be written or added to `kept`
    bool accumulate = false;
    bool is_last = false;  ///< micro-batch
  };
  void assign_buckets(const std::map<int, Copies>& copies, std::span<const int> update_of);
  void scatter_full(int parameter, bool last_micro_batch);
  /// The compute stream waits for the oldest full gradient on its way, which leaves its memory.
  void finish_oldest_scatter();
  void make_room_for_full();
  void finish_micro_batch();
  void bucket_complete(std::size_t index, bool last_micro_batch);
  void keep_own_parts(std::size_t index);
  void reduce(std::size_t index);
  void all_reduce(const Operand& operand, int group, std::string name);
  /// Own parts of the bucket, scattered out of it: into `kept`, or where they stand if something is in `kept` already.
  void scatter_own_parts(std::size_t index);
  /// What has just been issued to the communication stream takes @p bucket along.
  void depart(Travelling bucket);
  /// The compute stream waits for the bucket on its way, which leaves its memory; own parts come into `kept`.
  void finish_travelling();
  void add(const Operand& from, const Operand& to, bool accumulate, const std::string& name);
  int storage(std::size_t index);
  const ParameterShard& shard(int parameter) const { return shards_[static_cast<std::size_t>(parameter)]; }
  Member& member(int parameter) { return members_[static_cast<std::size_t>(parameter)]; }
  const Member& member(int parameter) const { return members_[static_cast<std::size_t>(parameter)]; }
  const ShardGroups::Set& groups_of(const Bucket& bucket) const { return groups_.of(bucket.parameters.front()); }
  bool shards_gradients(const Bucket& bucket) const;
  bool scatters(const Bucket& bucket) const;
  const std::string& name_of(int parameter) const {
    return graph_.parameters[static_cast<std::size_t>(parameter)].name;
  }

  const Plan& plan_;
  const ModelGraph& graph_;
  std::span<const Operator> operators_;
  std::span<const ParameterShard> shards_;
  const ShardGroups& groups_;
  ProgramBuilder& builder_;
  QuantizedReduction quantized_;
  std::vector<Member> members_;  ///< by parameter of the graph
  std::vector<Bucket> buckets_;
  std::vector<int> in_order_;
  std::deque<Scattered> scattered_;      ///< the oldest first
  std::int64_t scattered_elements_ = 0;  ///< of all of them
  std::int64_t largest_operator_ = 0;    ///< elements of the full gradients that an operator makes
  int num_complete_ = 0;                 ///< parameters, in this micro-batch
  std::optional<Travelling> travelling_;
  bool backward_is_over_ = false;            ///< nothing needs the memory of what travels any more
  std::vector<std::pair<int, int>> copies_;  ///< parameter and group, in the order of the graph
};

}  // namespace strata
