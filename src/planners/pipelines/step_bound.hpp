#pragma once

/// @file
/// What a step of given degrees takes and holds at least, from few blocks of the model: so that the simulator need not
/// be asked of every combination.
///
/// A rank computes one thing at a time, and between the first kernel of a pass and its last one nothing while it waits
/// for what its tensor ranks exchange (PricedInstruction::holds_up_kernels). With S places, F_s and B_s what a
/// micro-batch occupies place s forward and backward in all of its stages, f_j and b_j what it takes through the first
/// stage of place j, m_j the message from place j to the next:
///     step >= sum_{j<s} (f_j + m_j) + M (F_s + B_s) + max(update_s, sum_{j<s} (b_j + m_j) + update_0)   for every s,
/// and, as gradients are summed over data ranks once, behind the last micro-batches' passes through the last stage of
/// s,
///     step >= sum_{j<s} (f_j + m_j) + M F_s + (M - r) B_s + max(r B_s, all-reduce of its gradients),
/// r = 1, of several stages a place S. Where it is not decided how states are held, a reduce-scatter stands for the
/// all-reduce. Transfers that share a NIC and steps of a host only make it longer. Source of
/// the form: Narayanan et al., SC 2021, sec. 2.2. Besides, a step takes at least as long as its passes in their order
/// (partition/pipeline_passes.hpp) take until the first place has ended the last: that counts every hop of interleaved
/// stages, and every wait for a stage that takes longer than others.
///
/// A place holds the states of its stages, and at its fullest moment of all passes that are in flight what their
/// backwards will read. Where operators are DP or ZDP, as OSDP has them, the memory C says how many are ZDP: of E
/// elements of s bytes of states each, which n ranks may share, beside K bytes that are kept for backward, at least
///     X = (K + s E - C) / (s (1 - 1/n)),
/// and every micro-batch gathers them forward, those that its backward reads (all but Y) once more, and scatters their
/// gradients, one collective after the other:
///     step >= M (gather of X + gather of X - Y + reduce-scatter of X),
/// and where all that a rank sends goes through one NIC, what its tensor ranks exchange comes on top of that. Where
/// Programs of replicas are asked, what they hold stands for K + s E.

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "planners/pipelines/degrees.hpp"
#include "planners/pipelines/stage_prices.hpp"
#include "planners/search/few_blocks.hpp"

namespace strata {

/// How operators hold their states: replicated, whose gradients all-reduces sum; each replicated or sharded, DP or ZDP;
/// or in a way that is not decided yet. But for the first, gradients are scattered at least, once a step or more often,
/// and those of the last micro-batches under no other passes.
enum class HeldStates : std::uint8_t { replicated, dp_or_zdp, any };

class StepBounds {
 public:
  /// @param request outlives this; it has an evaluation that knows seconds.
  explicit StepBounds(const PlanRequest& request, HeldStates states = HeldStates::replicated);

  /// Seconds that a step of @p plan takes at least, within its capacity. 0: nothing is known, as nothing of it lowers.
  /// @param plan of @p degrees.
  double seconds(const ParallelDegrees& degrees, const Plan& plan);
  /// The same of any plan whose blocks are decided alike, without its gradients' sums, which states and buckets of its
  /// own decide, and without its updates where states are sharded. 0 also where blocks differ, steps overlap, nodes are
  /// not in their order, or sub-batches go through several stages. @param degrees of @p plan, of different tensor ranks
  /// the most.
  double seconds_of_alike_blocks(ParallelDegrees degrees, const Plan& plan) const;
  /// The same of plans whose operators are DP or ZDP, from what the places of @p plan, all of whose operators are DP,
  /// need: what that exceeds the capacity by is shared at least. 0 also where nothing has to be, or can be.
  /// @param peaks bytes that are alive at once, by place.
  double sharing_seconds(const ParallelDegrees& degrees, const Plan& plan, std::span<const std::int64_t> peaks);
  /// What the kernels of @p plan take alone, whatever is sent meanwhile: also a bound where sub-batches or switches of
  /// overlap let more run under them. 0 as above.
  double kernel_seconds(const ParallelDegrees& degrees, const Plan& plan);
  /// Bytes that the fullest rank holds at least; where it is not decided how states are held, with all of them shared
  /// by all ranks that may. 0 as above.
  std::int64_t bytes(const ParallelDegrees& degrees, const Plan& plan);

 private:
  struct PlaceNeeds;
  struct SharingDemand;
  const OperatorsPrices& prices_of(const ParallelDegrees& degrees);
  double seconds(const ParallelDegrees& degrees, const Plan& plan, const OperatorsPrices& prices,
                 bool sums_gradients) const;
  double message_seconds(const ParallelDegrees& degrees, const Plan& plan, int first_operator, int stage) const;
  std::int64_t num_elements(const ParallelDegrees& degrees, const std::vector<bool>& parameters) const;
  std::vector<PlaceNeeds> needs_of_places(const ParallelDegrees& degrees, const Plan& plan,
                                          const OperatorsPrices& prices) const;
  std::int64_t state_bytes(const Plan& plan) const;
  double sharing_seconds(const ParallelDegrees& degrees, const Plan& plan, const OperatorsPrices& prices) const;
  template <typename DemandOf>
  double sharing_seconds_of(const ParallelDegrees& degrees, const Plan& plan, const OperatorsPrices& prices,
                            const DemandOf& demand_of) const;
  double collective_of_copies(Collective kind, const ParallelDegrees& degrees, const Plan& plan, int place,
                              std::int64_t bytes) const;
  double gradient_seconds(const ParallelDegrees& degrees, const Plan& plan, int place,
                          const std::vector<bool>& parameters) const;

  const PlanRequest& request_;
  HeldStates states_;
  FewBlocks blocks_;
  ModelGraph part_;
  std::vector<bool> is_read_by_backward_;                                     ///< by parameter
  std::map<std::tuple<int, int, PartialSums, int>, OperatorsPrices> prices_;  ///< places, tensor, sum, M
};

}  // namespace strata
