#pragma once

/// @file
/// Which parameters the micro-batches of cyclic data parallelism read: of each stage those of their own training step,
/// or of the one before.
///
/// Source: Fournier et al., Cyclic Data Parallelism, 2024, sec. 3; with other numbers of stages than micro-batches
/// ours.

#include <string>
#include <vector>

#include "ir/plan/plan.hpp"

namespace strata {

/// By micro-batch a digit a stage, '1' where it reads the parameters θ_t of its own training step t, else θ_{t-1}.
using FreshTable = std::vector<std::string>;

/// Micro-batches that never read their own step's parameters (CDP-v1), or do wherever these are there in time (CDP-v2):
/// j·N >= K·(N - 1 - i).
FreshTable never_fresh(int num_micro_batches, int num_stages);
FreshTable freshest(int num_micro_batches, int num_stages);

/// Wherever they are there in time if all stages are updated at once, behind the last micro-batch's last backward, when
/// the norm of the step's gradients is known: j·N >= 2K·(N - 1 - i).
FreshTable freshest_behind_norm(int num_micro_batches, int num_stages);

/// What a plan of @p num_stages stages says. The plan is verified: its table has their size.
FreshTable fresh_table(const Schedule& schedule, int num_stages);

}  // namespace strata
