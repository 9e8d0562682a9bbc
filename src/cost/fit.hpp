#pragma once

/// @file
/// A straight line through measured transfer times, of one collective on one group or of all on one kind of link.

#include <span>

#include "base/collective.hpp"
#include "ir/machine/cost_profile.hpp"

namespace strata {

/// One measured collective: what this rank sent, and how long it took.
struct TransferTime {
  double sent_bytes = 0.0;
  double seconds = 0.0;
  double steps = 1.0;  ///< messages one after another
};

struct Line {
  double alpha_seconds = 0.0;
  double beta_seconds_per_byte = 0.0;
  double mean_relative_error = 0.0;  ///< mean of |line - measured| / measured
};

/// seconds ≈ alpha · steps + beta · sent_bytes by least squares on relative errors, so that small messages count as
/// much as large ones; alpha and beta are not negative. Source: AutoDDL sec. 3.2.
/// @param times at least two, of different sizes for their steps.
Line fit_alpha_beta(std::span<const TransferTime> times);

/// One α and β for all collectives inside a node, one for all that leave it.
struct LinkLines {
  Line inside, across;
  int num_inside = 0, num_across = 0;  ///< times that each stands on; 0: nothing was measured there, and it has no line
};

/// Ring steps and bytes as in AutoDDL's table 2: α (p-1) + β (p-1)/p · v, twice that for an all-reduce, over
/// all-reduce, all-gather, reduce-scatter and all-to-all at every size and on every group of @p times. Others are not
/// looked at.
LinkLines fit_links(std::span<const CollectiveTime> times);

}  // namespace strata
