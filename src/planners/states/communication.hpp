#pragma once

/// @file
/// Seconds a step spends communicating under given factors if nothing is hidden: AMSP's objective. With M
/// micro-batches, c and g bytes of a parameter and a gradient element, n_k elements of operator k, Φ their sum over
/// parameters, U bytes of a bucket, t(o, v, a×b) a cost model's time of collective o on v bytes:
///     T_p  = M Σ_k [a_k t(AG, c n_k, s_p) + t(RS, g n_k, s_p)]
///     T_g  = (M-1) gΦ/(U s_p) t(AR, U, s_g/s_p)
///     T_os = gΦ/(U s_p) t(AR, U, s_dp/s_p) + s_os/s_p t(BC, cΦ/s_os, s_os/s_p)
/// a_k = 2 gathers, 3 where a recomputed block gathers again. Intra-tensor: t(AG, cΦ/s_p, s_os/s_p) for the broadcasts.
/// Gradients by reduce-scatter: T_g with RS for AR, and t(RS, ·, s_os/s_p) + t(AR, ·/(s_os/s_p), s_dp/s_os) for T_os's
/// first term.
///
/// Source: AMSP sec. IV-C. Differs: all operators with parameters count, not those of layers alone; an embedding's
/// backward reads no weight, so it gathers once; a bucket is never larger than what there is; all groups of a node run
/// at once, and where they want more NICs than it has each takes that much longer.

#include <cstdint>
#include <map>

#include "cost/cost_model.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

struct CommunicationSeconds {
  double parameters = 0.0;  ///< T_p
  double gradients = 0.0;   ///< T_g
  double optimizer = 0.0;   ///< T_os
  double total() const { return parameters + gradients + optimizer; }
};

class StateCommunication {
 public:
  /// @param plan everything but the factors, as for StateMemory. @param costs null where there is one rank.
  StateCommunication(const ModelGraph& graph, const Plan& plan, const CostModel* costs);

  /// @p state is legal.
  CommunicationSeconds seconds(const StateFactors& state) const;

 private:
  double time(Collective kind, double bytes, const Factor& group) const;
  /// gΦ/s_p in buckets, over @p group.
  double bucketed(Collective kind, double bytes, const Factor& group) const;

  struct Module {
    std::int64_t elements = 0;
    int num_gathers = 0;
    auto operator<=>(const Module&) const = default;
  };

  const Plan& plan_;
  const CostModel* costs_;
  std::map<Module, int> modules_;  ///< how many there are of each
  double elements_ = 0.0;          ///< Φ
  double num_parameters_ = 0.0;    ///< tensors
};

}  // namespace strata
