#pragma once

/// @file
/// How the gradients of one rank become the sums that updates read: a value that is computed before anything is
/// lowered, by going along the order of the step once. It says where each contribution goes and what is done behind it,
/// at each place of the order; gradient_emission looks it up.
///
/// With p, g, os  the factors, dp all data ranks, M micro-batches (AMSP, sec. IV-C):
/// - p > 1: the full gradient of an operator is reduce-scattered over p at every micro-batch, and added up.
/// - g = p: the bucket is summed over micro-batches, then all-reduced once over the dp/p ranks with the same shard.
/// - g = os > p: at every micro-batch but the last the bucket is all-reduced over os/p and all but the own part is
///   dropped; that part, kept, is added at its place to the last micro-batch's bucket before the all-reduce over dp/p,
///   so that nothing counts twice.
/// With optimizer.gradients = "reduce_scatter" the own parts come from a reduce-scatter of the bucket's tensors over
/// os/p instead, and only these parts are all-reduced, over dp/os.
///
/// What is on its way needs memory beside what is computed: a full gradient until its reduce-scatter is through, a
/// bucket of which only a part is kept until that part is there. Of each kind no more is held than the largest
/// operator's gradient and one bucket: what comes next waits for what went before, and takes its place. Additions to
/// what earlier micro-batches left wait as long, so that what runs until then hides the transfer.
///
/// Quantised gradients (ZeRO++) take the way of quantized_reduction instead of the first reduce-scatter.
///
/// On a ring of replicas a rank does not begin with its own gradients, but with the sum that the replica before it has
/// made of those of earlier micro-batches, and hands on its own sum; the last one has the whole, and hands it to
/// whoever updates the parameters, where that is another. Micro-batches' gradients are added up by the kernels that
/// make them, or, with schedule.sum = "after", made apart and added behind these.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "ir/program/program.hpp"
#include "lower/states/action_range.hpp"
#include "lower/states/by_operator.hpp"
#include "lower/states/gradient_buckets.hpp"
#include "lower/states/gradient_contributions.hpp"
#include "lower/states/shard_groups.hpp"
#include "partition/shards.hpp"

namespace strata {

/// Operands are parts of GradientSums::buffers.
struct GradientAction {
  enum class Kind : std::uint8_t {
    reduce_scatter,  ///< `from` over `group`, this rank's part into `to`
    all_reduce,      ///< `to` over `group`, in place
    all_to_all,      ///< `from` over `group` into `to`
    quantize,        ///< `from` into `to`, in the order of all_to_all
    dequantize,      ///< the sum of the pieces in `from` (+)= into `to`
    copy,            ///< `from` into `to`
    add,             ///< `from` += into `to`
    receive,         ///< `to` from member `peer` of `group`: the sum over earlier micro-batches
    send,            ///< `from` to member `peer` of `group`
    await,           ///< what the compute stream runs next waits for action `awaited`
    hold_sums        ///< the next sum over replicas waits for all that the compute stream has been given
  };
  Kind kind = Kind::await;
  int parameter = -1;  ///< whose gradient; -1: those of `bucket`
  int bucket = -1;
  Operand from{};
  Operand to{};
  int group = -1;
  bool is_between_replicas = false;  ///< of a collective: not of the ranks that share the parameter
  int peer = -1;
  int stream = -1;  ///< of send and receive
  int awaited = -1;
  bool goes_with_next = false;  ///< reduce_scatter: one collective moves this tensor and the next action's
  /// quantize, dequantize: see quantized_reduction.
  struct Chunks {
    std::int64_t size = 0;    ///< elements of a chunk
    std::int64_t number = 0;  ///< of chunks, quantize: in all; dequantize: in a piece
    std::int64_t nodes = 1;   ///< quantize: chunks stand in the order (place in the node, node)
    int pieces = 1;           ///< dequantize: that are added up
    bool accumulate = false;  ///< dequantize: to what is there
    bool operator==(const Chunks&) const = default;
  };
  Chunks chunks{};
  bool operator==(const GradientAction&) const = default;
};

struct GradientSums {
  /// Where the kernel that makes a contribution puts it.
  struct Destination {
    int parameter = -1;
    Operand place{};
    bool accumulate = false;  ///< an earlier contribution is there
    ActionRange before{};     ///< that make room for it
    bool operator==(const Destination&) const = default;
  };
  /// The backward of an operator that has parameters, in an item of the order.
  struct OfOperator {
    std::vector<Destination> destinations{};  ///< by parameter of the operator
    ActionRange behind_contributions{};       ///< as soon as the kernels that make them are issued
    ActionRange behind_operator{};            ///< when all of its kernels are
    bool operator==(const OfOperator&) const = default;
  };
  /// What this rank contributes to the norm of all gradients.
  struct Counted {
    Operand operand{};  ///< of no elements where nothing of it is this rank's
    int group = -1;     ///< whose members' parts together are one copy of the gradients; -1: this rank's is one
    std::string name{};
    bool operator==(const Counted&) const = default;
  };

  /// In the order in which they are needed first. The first ones, which last for the whole step, stand in all of it.
  std::vector<Buffer> buffers{};
  int num_lasting = 0;
  /// By buffer that is not this training step's alone: the one that it stands in, from its beginning on.
  std::map<int, Buffer> shared{};
  std::vector<GradientAction> actions{};  ///< in the order in which they are issued
  ByOperator<OfOperator> backward{};
  std::map<int, ActionRange> before_item{};  ///< of an update in backward, or of what runs under a receive
  ActionRange ahead_of_update{};             ///< before the pass that stands before the last update
  ActionRange behind_backward{};
  std::vector<int> parameters{};   ///< in the order of updates
  std::vector<Operand> reduced{};  ///< by parameter: the sum over all ranks, of the elements that this rank updates
  std::vector<Counted> counted{};
  bool operator==(const GradientSums&) const = default;

  /// All elements of a buffer.
  Operand whole(int buffer) const { return {buffer, 0, buffers[static_cast<std::size_t>(buffer)].num_elements}; }
};

/// Whom a rank has partial sums from, and to whom they go on: members of a group, and the streams of these messages.
struct RingOfSums {
  struct Peer {
    int rank = -1;  ///< in the group; -1: nobody
    int stream = -1;
  };
  int group = -1;
  Peer from{};  ///< nobody: it is the first
  Peer to{};    ///< nobody: it is the last
  /// By parameter: from whom its whole sum comes to be updated here, and to whom it goes from here; left out: nobody.
  std::map<int, Peer> whole_from{}, whole_to{};

  /// By parameter whose sums stand in buffers that all training steps share: the number of its stage's. A stage that is
  /// to have that of another one waits until the other's sums are through. Empty: buffers are each training step's own.
  std::map<int, int> slots{};

  /// To whom the sum of @p parameter goes from here, whole or not.
  Peer next(int parameter) const {
    const auto whole = whole_to.find(parameter);
    return whole == whole_to.end() ? to : whole->second;
  }
};

/// @param contributions of @p order.  @param shards by parameter.  @param copies by parameter that has some: in the
/// order of the graph, which all stages share, its sums are added up over them.  @param ring null: there is none.
GradientSums gradient_sums(const StepOrder& order, std::span<const GradientContribution> contributions,
                           const GradientBuckets& buckets, const Plan& plan, const ModelGraph& graph,
                           std::span<const ParameterShard> shards, const ShardGroups& groups,
                           const std::map<int, Copies>& copies, const RingOfSums* ring);

}  // namespace strata
