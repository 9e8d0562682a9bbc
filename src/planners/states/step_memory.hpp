#pragma once

/// @file
/// Bytes that a rank holds of states, kernel by kernel, as lower/gathering and lower/gradient_buckets issue a step:
/// exact to the byte, without a Program. A buffer counts from its first use until the compute stream knows its last use
/// to be over, so that what a collective still reads counts too.
///
/// Beside its shards (AMSP's cΦ/s_p + gΦ/s_g + kΦ/s_os) a rank has for a while
/// - s_p > 1, gathered parameters: those of the layer that is computed, and as far as the plan fetches ahead, in
///   forward those of one layer more, in backward the next module's weight, or all that the next block recomputes;
/// - s_p > 1, full gradients: the one that is computed, and, where reduce-scatters are overlapped, those of before that
///   are together no larger than the largest operator's;
/// - s_g > s_p, or at the end gradients = reduce_scatter: buckets, the one that is filled, and, where all-reduces are
///   overlapped, the one that travels.
/// So beyond what is being computed there are at most one layer and one bucket, or one operator's gradient; the second
/// of each is what makes the overlap: the compute stream writes one while the other is read.
///
/// Of equal layers of n elements, w of them read by backward, with one layer a bucket (U = g n/s_p) and at least two
/// micro-batches, to the byte:
///     s_p = s_g = s_os > 1:      c (w or 2w) + g (n or 2n)     2: fetched ahead; reduce-scatters overlapped
///     s_p = 1, s_g = s_os > 1:   U or 2U                       2: all-reduces overlapped
///     s_p = s_g = 1, scattered:  U/s_os
/// and at most their sum where s_os > s_p > 1. The modes' file comments say what one micro-batch changes.

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Elements of each parameter that a rank keeps, by parameter of the graph.
struct Shares {
  std::vector<std::int64_t> held;     ///< the p shard, whose gradient stands in buckets
  std::vector<std::int64_t> updated;  ///< of it, by its owner
  std::vector<int> owner;             ///< which of those that share a p shard updates it
  int num_owners = 1;                 ///< that differ: 1 where all have even parts
};

/// Bytes at one kernel. Parameters, which stay, are not among them.
struct StepMoment {
  int op = -1;                  ///< operator whose kernel runs, of the graph; -1: behind the last backward
  bool backward = false;        ///< or recomputed
  std::int64_t gathered = 0;    ///< parameters
  std::int64_t second = 0;      ///< p_backward: second shards
  std::int64_t own = 0;         ///< optimizer states and kept gradients, of the owner that has most by now
  std::int64_t buckets = 0;     ///< g = p: gradients, up to their update
  std::int64_t leaving = 0;     ///< of all these, what only a collective that has been issued still reads
  bool allocates = false;       ///< memory of these kinds
  std::int64_t on_the_way = 0;  ///< full gradients, and buckets of which a part is kept
  std::int64_t total() const { return gathered + second + own + buckets + on_the_way; }
  /// Of them what comes and goes.
  std::int64_t temporary() const { return gathered + on_the_way; }
};

class StepMemory {
 public:
  /// @param plan everything but the factors, equal decisions for all operators, nothing quantised, no slices.
  StepMemory(const ModelGraph& graph, const Plan& plan);

  /// Calls @p visit at every kernel of up to three micro-batches: what is between the first and the last is alike.
  void walk(const StateFactors& state, const Shares& shares, const std::function<void(const StepMoment&)>& visit) const;

 private:
  class Walk;
  /// One operator, as far as it matters here.
  struct Step {
    std::vector<int> parameters;
    std::vector<int> read_by_backward;
    std::vector<int> next_read;  ///< what backward reads next, unless that is of a block recomputed before it
    bool one_kernel = false;     ///< makes all gradients; otherwise the parameters' come first
    int block = -1;
    int unit = 0;  ///< what is gathered together ahead of time: a block, or what stands between blocks
    bool begins_unit = false;
    bool ends_block = false;    ///< which is recomputed before its backward
    int recomputed_after = -1;  ///< block that is recomputed after the unit whose backward begins here
  };

  const Plan& plan_;
  std::vector<Step> steps_;
  std::vector<std::vector<int>> recomputed_;  ///< operators, by block; empty where nothing is
  std::vector<std::vector<int>> units_;       ///< parameters of each, in order of use
  std::vector<std::int64_t> sizes_;           ///< elements by parameter
  std::vector<int> num_uses_;                 ///< by parameter: operators
  std::vector<int> completion_order_;         ///< parameters as backward completes their gradients
  std::vector<bool> read_again_;              ///< by parameter: after forward
};

}  // namespace strata
