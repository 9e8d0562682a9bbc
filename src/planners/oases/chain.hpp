#pragma once

/// @file
/// What Oases' planner chooses from (sec. 4): a chain of nodes, each a run of compute that ends with a sum over the
/// tensor ranks, and for each node a choice, which is a tensor degree. Numbers only: what a choice is called, and which
/// layouts it means, whoever makes the chain knows.
///
/// Seconds are of one sub-batch, which is the s-th of S; all sub-batches are alike. With p, c of a pass, S = 2 and
/// equal choices a pass takes, from its first node to its last,
///   p_1 + sum over i < K of [max(p_i, c_i) + max(p_{i+1}, c_i)] + max(p_K, c_K) + c_K        (eq. 3)
/// which is what the order of sub-batches in turns takes, to the last bit, where each waits for the other: in the
/// forward pass always; in the backward, whose recomputation need not wait for gradients, at most this.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata {

/// Of one sub-batch in one node.
struct PassSeconds {
  double compute = 0.0;        ///< p
  double communication = 0.0;  ///< c: the sum behind it
};

struct ChainChoice {
  PassSeconds forward;
  PassSeconds backward;  ///< compute: recomputation and backward
  /// Of a step, in shares of its micro-batches: sums of gradients over data ranks, and updates. The paper has none.
  double step_seconds = 0.0;
  std::int64_t resident_bytes = 0;  ///< parameters, gradients, optimizer states, what is saved for the backward
  std::int64_t runtime_bytes = 0;   ///< besides, while the node's backward runs; counted of the last node
};

/// Where two neighbours differ, samples are gathered before the one that has more of them: seconds of one sub-batch. 0:
/// nothing is gathered.
struct GatherSeconds {
  double forward = 0.0;   ///< before the later node
  double backward = 0.0;  ///< before the earlier node
};

/// What runs under a gather.
enum class Reshard : std::uint8_t {
  blocking,   ///< nothing (eq. 4): all gathers of an edge, and what they part can no longer overlap
  pipelined,  ///< compute of the sub-batches before it, as layout collectives of turns are lowered
};

struct Chain {
  int sub_batches = 2;
  Reshard reshard = Reshard::pipelined;
  std::int64_t capacity_bytes = 0;                ///< 0: no limit
  bool ends_agree = false;                        ///< the first and the last node have one weight, so one choice
  std::vector<std::vector<ChainChoice>> nodes{};  ///< [node][choice]
  /// [node before][choice of it · choices of the next + choice of the next]
  std::vector<std::vector<GatherSeconds>> gathers{};

  std::size_t size() const { return nodes.size(); }
  const GatherSeconds& gather(std::size_t node, int choice, int next) const {
    return gathers[node][static_cast<std::size_t>(choice) * nodes[node + 1].size() + static_cast<std::size_t>(next)];
  }
};

/// Choices that no plan can make, such as different degrees of two users of one weight, gather for so long.
inline constexpr double impossible_seconds = 1e30;

struct ChainAnswer {
  std::vector<int> choices{};  ///< by node; empty: nothing fits
  double seconds = 0.0;        ///< of a micro-batch, forward and backward
  std::int64_t bytes = 0;
  bool fits() const { return !choices.empty(); }
  /// Fewer seconds, or as many and fewer bytes.
  bool is_better_than(const ChainAnswer& other) const {
    if (!fits() || !other.fits()) return fits();
    return seconds != other.seconds ? seconds < other.seconds : bytes < other.bytes;
  }
};

/// @throws InternalError where sizes do not belong together, or a number is negative.
void verify(const Chain& chain);

}  // namespace strata
