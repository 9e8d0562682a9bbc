#pragma once

/// @file
/// What the stages of a pipeline take and keep, each operator priced alone in few blocks of the model.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "partition/stages.hpp"
#include "planners/planner.hpp"
#include "planners/search/few_blocks.hpp"

namespace strata {

/// What one operator does in one pass of one micro-batch, or several one after another do, in seconds.
struct PassPrice {
  double kernels = 0.0, collectives = 0.0;
  double ahead = 0.0, behind = 0.0;  ///< of the collectives: those before its first kernel, and behind its last
  double last_kernels = 0.0;         ///< those behind its last collective
  bool has_kernels = false;

  void append(const PassPrice& next) {
    ahead += has_kernels ? 0.0 : next.ahead;
    behind = next.has_kernels ? next.behind : behind + next.collectives;
    last_kernels = next.collectives > 0.0 ? next.last_kernels : last_kernels + next.last_kernels;
    has_kernels = has_kernels || next.has_kernels;
    kernels += next.kernels;
    collectives += next.collectives;
  }
  void append(double seconds, bool is_collective) {
    append(is_collective ? PassPrice{.collectives = seconds, .ahead = seconds, .behind = seconds}
                         : PassPrice{.kernels = seconds, .last_kernels = seconds, .has_kernels = true});
  }
  double whole() const { return kernels + collectives; }
  /// Of the rank: what stands at its ends runs under other passes.
  double occupied() const { return has_kernels ? whole() - ahead - behind : 0.0; }
};

/// Of the first micro-batch, and of one behind it, whose gradients are added to what is there.
struct PassPrices {
  std::array<PassPrice, 2> forward, again, backward;
  std::array<const std::array<PassPrice, 2>*, 3> all() const { return {&forward, &again, &backward}; }
};

inline constexpr int priced_micro_batches = 2;

/// @p part of all micro-batches of a step.
inline double in_step(const std::array<PassPrice, 2>& passes, double PassPrice::*part, int micro_batches) {
  return passes[0].*part + (micro_batches - 1) * passes[1].*part;
}

/// What an operator makes in its forward that is read when the backward of others comes, or its own.
struct KeptForBackward {
  std::vector<int> readers;  ///< how far behind it these operators stand
  std::int64_t bytes = 0;    ///< of a micro-batch
};

/// Of the operators of a model, those of few blocks standing for all.
struct OperatorsPrices {
  OperatorsPrices() = default;
  OperatorsPrices(OperatorsPrices&&) = default;  // the vectors look into the maps
  OperatorsPrices& operator=(OperatorsPrices&&) = default;

  std::map<std::string, PassPrices, std::less<>> passes;                  ///< by operator of the few blocks
  std::map<std::string, std::vector<KeptForBackward>, std::less<>> kept;  ///< by operator of the few blocks
  /// By operator of the model, what stands for it in the maps; null: nothing.
  std::vector<const PassPrices*> passes_of;
  std::vector<const std::vector<KeptForBackward>*> kept_of;
  std::vector<double> update_seconds;  ///< by parameter of the model
  double overhead_seconds = 0.0;       ///< of a step
  bool has_one_stream = true;          ///< of collectives that hold up kernels: each runs behind the one before it
  bool is_known = false;               ///< else nothing of it lowers
};

/// @param part the few @p blocks of the request's model. @param place a plan of @p part without stages, of
/// priced_micro_batches at most.
OperatorsPrices prices_of_operators(const PlanRequest& request, const FewBlocks& blocks, const ModelGraph& part,
                                    const Plan& place);

struct StagePrice {
  PassPrices passes;
  double update_seconds = 0.0;
  std::vector<bool> parameters;  ///< by parameter of the model: used here
};

/// By stage of @p plan.
std::vector<StagePrice> prices_of_stages(const ModelGraph& graph, const Plan& plan, const OperatorsPrices& operators);

/// Of a micro-batch between its passes through @p stage. What stages before it made is left out.
std::int64_t kept_bytes(const OperatorsPrices& operators, const Stage& stage);

}  // namespace strata
