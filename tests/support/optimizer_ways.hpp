#pragma once

/// @file
/// The ways to deal optimizer states and to bring gradients to them.

#include "ir/plan/plan.hpp"

namespace strata {

struct Way {
  const char* sharding;
  const char* spread;
  const char* gradients;
};
constexpr Way ways[] = {{"intra_tensor", "all_gather", "all_reduce"},
                        {"intra_tensor", "all_gather", "reduce_scatter"},
                        {"inter_tensor", "broadcast", "all_reduce"}};

inline void set_way(Plan& plan, const Way& way) {
  plan.optimizer.sharding = way.sharding;
  plan.optimizer.spread = way.spread;
  plan.optimizer.gradients = way.gradients;
}

}  // namespace strata
